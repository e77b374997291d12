#include "text/tokenizer/normalizer.h"

#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

std::string without_marks(std::string_view text) {
  const CodePointTable& table = CodePointTable::instance();
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_char(text.data() + i);
    if (!table[c.code_point].is_mark()) out.append(text.substr(i, c.length));
    i += c.length;
  }
  return out;
}

std::string_view stripped(std::string_view text, const StripSpaces& how) {
  const CodePointTable& table = CodePointTable::instance();
  std::size_t begin = text.size(),
              end = 0;  // of what lies between the first and the last character that is no space
  for (std::size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_char(text.data() + i);
    if (!table[c.code_point].is_space()) {
      begin = std::min(begin, i);
      end = i + c.length;
    }
    i += c.length;
  }
  if (!how.left) begin = 0;
  if (!how.right) end = text.size();
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

struct Apply {
  std::string_view text;
  std::size_t limit_bytes;

  std::string operator()(NormalForm form) const { return normalize(text, form); }
  std::string operator()(const Replace& step) const {
    return replace_all(text, step.pattern, step.content, limit_bytes);
  }
  std::string operator()(const Prepend& step) const {
    return text.empty() ? std::string() : step.content + std::string(text);
  }
  std::string operator()(Lowercase) const { return lowercase(text); }
  std::string operator()(StripAccents) const { return without_marks(text); }
  std::string operator()(const StripSpaces& step) const {
    return std::string(stripped(text, step));
  }
};

}  // namespace

std::string_view normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           std::string& storage) {
  const std::size_t limit_bytes = growth_limit(text.size());
  for (const NormalizerStep& step : steps) {
    const auto* form = std::get_if<NormalForm>(&step);
    if (form != nullptr && *form == NormalForm::kNfc && is_plainly_nfc(text)) continue;
    storage = std::visit(Apply{text, limit_bytes}, step);
    text = storage;
  }
  return text;
}

}  // namespace slime::text
