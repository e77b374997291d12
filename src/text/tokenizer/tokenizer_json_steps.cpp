#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

constexpr int kMaxDepth = 8;           // of sequences in sequences
constexpr std::size_t kMaxSteps = 64;  // published files have at most 6
constexpr std::size_t kMaxContentBytes = 256;

/// Calls `read(step)` for each step of a part, in order, with sequences opened. `list_key` names a
/// sequence's members.
template <typename Read>
void for_each_step(const JsonField& field, std::string_view list_key, Read read, int depth = 0) {
  if (field.is_null()) return;
  if (depth > kMaxDepth) return field.reject("is nested too deeply");
  if (field["type"].string() != "Sequence") return read(field);
  for (const JsonField& element : field[list_key].elements())
    for_each_step(element, list_key, read, depth + 1);
}

/// Adds the step unless there are too many.
template <typename Step>
void add(std::vector<Step>& steps, Step step, const JsonField& field) {
  if (steps.size() == kMaxSteps)
    return field.reject(fmt::format("is one of more than {} steps", kMaxSteps));
  steps.push_back(std::move(step));
}

void reject_type(const JsonField& field, std::string_view known) {
  field["type"].reject(fmt::format("is \"{}\"; known are {}", field["type"].string(), known));
}

std::string read_content(const JsonField& field) {
  const std::string_view content = field.string();
  if (content.size() > kMaxContentBytes)
    field.reject(fmt::format("is longer than {} bytes", kMaxContentBytes));
  return std::string(content.substr(0, kMaxContentBytes));
}

/// One character.
std::string read_character(const JsonField& field) {
  const std::string_view text = field.string();
  if (text.empty() || decode_char(text.data()).length != text.size())
    field.reject("must be one character");
  return std::string(text);
}

/// {"String": "..."} or {"Regex": "..."}; nothing when it is neither or cannot be compiled.
std::optional<Pattern> read_pattern(const JsonField& field) {
  if (const JsonField literal = field["String"]; !literal.is_null()) {
    std::string text = read_content(literal);
    if (!text.empty()) return Pattern::literal(std::move(text));
    literal.reject("is empty");
    return std::nullopt;
  }
  const JsonField regex = field["Regex"];
  if (!regex.is_string()) {
    field.reject("must be {\"String\": ...} or {\"Regex\": ...}");
    return std::nullopt;
  }
  Expected<Pattern> pattern = Pattern::regex(regex.string());
  if (pattern) return std::move(*pattern);
  regex.reject(pattern.error().message);
  return std::nullopt;
}

SplitBehavior read_behavior(const JsonField& field) {
  using enum SplitBehavior;
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", kRemoved},
      {"Isolated", kIsolated},
      {"MergedWithPrevious", kMergedWithPrevious},
      {"MergedWithNext", kMergedWithNext},
      {"Contiguous", kContiguous}};
  const std::string_view name = field.string();
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  field.reject(fmt::format(
      "is \"{}\"; known are Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous",
      name));
  return kIsolated;
}

/// Shared by the pre-tokenizer and the decoder. Old files have add_prefix_space instead of
/// prepend_scheme.
Metaspace read_metaspace(const JsonField& field) {
  using enum Metaspace::Prepend;
  Metaspace step;
  step.replacement = read_character(field["replacement"]);
  step.split = field["split"].boolean(true);
  const JsonField scheme = field["prepend_scheme"];
  const std::string_view name = scheme.is_null() ? "always" : scheme.string();
  if (name == "never") {
    step.prepend = kNever;
  } else if (name == "first") {
    step.prepend = kFirst;
  } else if (name != "always") {
    scheme.reject(fmt::format("is \"{}\"; known are always, first, never", name));
  }
  if (!field["add_prefix_space"].boolean(true)) {
    if (!scheme.is_null() && step.prepend != kNever)
      field.reject("has add_prefix_space false, but a prepend_scheme");
    step.prepend = kNever;
  }
  return step;
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const JsonField& part) {
  std::vector<NormalizerStep> steps;
  for_each_step(part, "normalizers", [&steps](const JsonField& field) {
    const std::string_view type = field["type"].string();
    const auto add_step = [&](NormalizerStep step) { add(steps, std::move(step), field); };
    if (type == "NFC") return add_step(NormalForm::kNfc);
    if (type == "NFD") return add_step(NormalForm::kNfd);
    if (type == "NFKC") return add_step(NormalForm::kNfkc);
    if (type == "NFKD") return add_step(NormalForm::kNfkd);
    if (type == "Lowercase") return add_step(Lowercase{});
    if (type == "StripAccents") return add_step(StripAccents{});
    if (type == "Prepend") return add_step(Prepend{read_content(field["prepend"])});
    if (type == "Strip") {
      return add_step(StripSpaces{field["strip_left"].boolean(), field["strip_right"].boolean()});
    }
    if (type == "Replace") {
      std::optional<Pattern> pattern = read_pattern(field["pattern"]);
      std::string content = read_content(field["content"]);
      if (pattern) add_step(Replace{std::move(*pattern), std::move(content)});
      return;
    }
    reject_type(field,
                "NFC, NFD, NFKC, NFKD, Replace, Prepend, Lowercase, Strip, StripAccents, Sequence");
  });
  return steps;
}

std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonField& part) {
  std::vector<PreTokenizerStep> steps;
  for_each_step(part, "pretokenizers", [&steps](const JsonField& field) {
    const std::string_view type = field["type"].string();
    const auto add_step = [&](PreTokenizerStep step) { add(steps, std::move(step), field); };
    if (type == "Digits") return add_step(Digits{field["individual_digits"].boolean()});
    if (type == "Whitespace") return add_step(Whitespace{});
    if (type == "WhitespaceSplit") return add_step(WhitespaceSplit{});
    if (type == "Metaspace") return add_step(read_metaspace(field));
    if (type == "Punctuation") {
      const JsonField behavior = field["behavior"];
      return add_step(
          Punctuation{behavior.is_null() ? SplitBehavior::kIsolated : read_behavior(behavior)});
    }
    if (type == "ByteLevel") {
      ByteLevel step;
      step.add_prefix_space = field["add_prefix_space"].boolean();
      step.use_regex = field["use_regex"].boolean(true);
      return add_step(step);
    }
    if (type == "Split") {
      std::optional<Pattern> pattern = read_pattern(field["pattern"]);
      const SplitBehavior behavior = read_behavior(field["behavior"]);
      const bool invert = field["invert"].boolean();
      if (pattern) add_step(Split{std::move(*pattern), behavior, invert});
      return;
    }
    reject_type(
        field,
        "ByteLevel, Split, Digits, Whitespace, WhitespaceSplit, Metaspace, Punctuation, Sequence");
  });
  return steps;
}

std::vector<DecoderStep> read_decoder(const JsonField& part) {
  std::vector<DecoderStep> steps;
  for_each_step(part, "decoders", [&steps](const JsonField& field) {
    const std::string_view type = field["type"].string();
    const auto add_step = [&](DecoderStep step) { add(steps, std::move(step), field); };
    if (type == "ByteLevel") return add_step(DecodeByteLevel{});
    if (type == "ByteFallback") return add_step(DecodeByteFallback{});
    if (type == "Fuse") return add_step(DecodeFuse{});
    if (type == "Metaspace") {
      const Metaspace metaspace = read_metaspace(field);
      return add_step(
          DecodeMetaspace{metaspace.replacement, metaspace.prepend != Metaspace::Prepend::kNever});
    }
    if (type == "Strip") {
      constexpr int64_t kMost = 1000;
      return add_step(DecodeStrip{read_character(field["content"]),
                                  static_cast<std::size_t>(field["start"].integer(0, kMost)),
                                  static_cast<std::size_t>(field["stop"].integer(0, kMost))});
    }
    if (type == "Replace") {
      std::optional<Pattern> pattern = read_pattern(field["pattern"]);
      std::string content = read_content(field["content"]);
      if (pattern) add_step(DecodeReplace{std::move(*pattern), std::move(content)});
      return;
    }
    reject_type(field, "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence");
  });
  return steps;
}

}  // namespace slime::text
