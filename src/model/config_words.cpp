#include "model/config_words.h"

namespace slime::model {

std::string_view word_of(QkNorm norm) {
  switch (norm) {
    case QkNorm::kNone:
      return "none";
    case QkNorm::kPerHead:
      return "of each head";
    case QkNorm::kAllHeads:
      return "of all heads";
  }
  return "";
}

std::string_view word_of(Rope::Kind kind) {
  switch (kind) {
    case Rope::Kind::kDefault:
      return "default";
    case Rope::Kind::kLinear:
      return "linear";
    case Rope::Kind::kDynamic:
      return "dynamic";
    case Rope::Kind::kLlama3:
      return "llama3";
    case Rope::Kind::kYarn:
      return "yarn";
    case Rope::Kind::kLongrope:
      return "longrope";
  }
  return "";
}

std::string_view word_of(RouterScore score) {
  return score == RouterScore::kSigmoid ? "sigmoid" : "softmax";
}

}  // namespace slime::model
