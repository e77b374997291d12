#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

constexpr int kMaxDepth = 8;           // of sequences in sequences
constexpr std::size_t kMaxSteps = 64;  // published files have at most 6
constexpr std::size_t kMaxContentBytes = 256;

/// Calls `read(step, type)` for each step of a part, in order, with sequences opened. `list_key`
/// names a sequence's members.
template <typename Read>
void for_each_step(const FieldReader& part, std::string_view list_key, Read read, int depth = 0) {
  if (depth > kMaxDepth) return part.note_object("is nested too deeply");
  const auto type = part.required().text("type");
  if (!type) return;
  if (*type != "Sequence") return read(part, *type);
  for (const FieldReader& element : part.required().list(list_key))
    for_each_step(element, list_key, read, depth + 1);
}

/// Adds the step unless there are too many.
template <typename Step>
void add(std::vector<Step>& steps, Step step, const FieldReader& fields) {
  if (steps.size() == kMaxSteps)
    return fields.note_object(fmt::format("is one of more than {} steps", kMaxSteps));
  steps.push_back(std::move(step));
}

void reject_type(const FieldReader& fields, std::string_view type, std::string_view known) {
  fields.note("type", fmt::format("is \"{}\"; known are {}", type, known));
}

std::string read_content(const FieldReader& fields, std::string_view name) {
  return fields.required().text(name, kMaxContentBytes).value_or("");
}

bool is_true(const FieldReader& fields, std::string_view name) {
  return fields.required().boolean(name).value_or(false);
}

/// One character.
std::string read_character(const FieldReader& fields, std::string_view name) {
  const auto text = fields.required().text(name);
  if (!text) return "";
  fields.expect(!text->empty() && decode_char(text->data()).length == text->size(), name,
                "must be one character");
  return *text;
}

/// {"String": "..."} or {"Regex": "..."}; nothing when it is neither or cannot be compiled.
std::optional<Pattern> read_pattern(const FieldReader& step) {
  const auto fields = step.required().fields("pattern");
  if (!fields) return std::nullopt;
  if (fields->has("String")) {
    std::string text = read_content(*fields, "String");
    if (!text.empty()) return Pattern::literal(std::move(text));
    fields->note("String", "is empty");
    return std::nullopt;
  }
  const json::value* regex = fields->find("Regex");
  if (regex == nullptr || !regex->is_string()) {
    fields->note_object("must be {\"String\": ...} or {\"Regex\": ...}");
    return std::nullopt;
  }
  Expected<Pattern> pattern = Pattern::regex(regex->get_string());
  if (pattern) return std::move(*pattern);
  fields->note("Regex", pattern.error().message);
  return std::nullopt;
}

std::optional<SplitBehavior> read_behavior(const FieldReader& fields) {
  using enum SplitBehavior;
  constexpr std::array<std::string_view, 5> kNames = {"Removed", "Isolated", "MergedWithPrevious",
                                                      "MergedWithNext", "Contiguous"};
  constexpr std::array kBehaviors = {kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext,
                                     kContiguous};
  const auto name = fields.one_of("behavior", kNames);
  if (!name) return std::nullopt;
  return kBehaviors[static_cast<std::size_t>(std::ranges::find(kNames, *name) - kNames.begin())];
}

/// Shared by the pre-tokenizer and the decoder. Old files have add_prefix_space instead of
/// prepend_scheme.
Metaspace read_metaspace(const FieldReader& fields) {
  using enum Metaspace::Prepend;
  constexpr std::array<std::string_view, 3> kSchemes = {"always", "first", "never"};
  Metaspace step;
  step.replacement = read_character(fields, "replacement");
  step.split = fields.boolean("split").value_or(true);
  const auto scheme = fields.one_of("prepend_scheme", kSchemes);
  if (scheme == "never") step.prepend = kNever;
  if (scheme == "first") step.prepend = kFirst;
  if (!fields.boolean("add_prefix_space").value_or(true)) {
    if (scheme && step.prepend != kNever)
      fields.note_object("has add_prefix_space false, but a prepend_scheme");
    step.prepend = kNever;
  }
  return step;
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const FieldReader& file) {
  std::vector<NormalizerStep> steps;
  const auto part = file.fields("normalizer");
  if (!part) return steps;
  for_each_step(*part, "normalizers", [&steps](const FieldReader& fields, std::string_view type) {
    const auto add_step = [&](NormalizerStep step) { add(steps, std::move(step), fields); };
    if (type == "NFC") return add_step(NormalForm::kNfc);
    if (type == "NFD") return add_step(NormalForm::kNfd);
    if (type == "NFKC") return add_step(NormalForm::kNfkc);
    if (type == "NFKD") return add_step(NormalForm::kNfkd);
    if (type == "Lowercase") return add_step(Lowercase{});
    if (type == "StripAccents") return add_step(StripAccents{});
    if (type == "Prepend") return add_step(Prepend{read_content(fields, "prepend")});
    if (type == "Strip") {
      return add_step(StripSpaces{is_true(fields, "strip_left"), is_true(fields, "strip_right")});
    }
    if (type == "Replace") {
      std::optional<Pattern> pattern = read_pattern(fields);
      std::string content = read_content(fields, "content");
      if (pattern) add_step(Replace{std::move(*pattern), std::move(content)});
      return;
    }
    reject_type(fields, type,
                "NFC, NFD, NFKC, NFKD, Replace, Prepend, Lowercase, Strip, StripAccents, Sequence");
  });
  return steps;
}

std::vector<PreTokenizerStep> read_pre_tokenizer(const FieldReader& file) {
  std::vector<PreTokenizerStep> steps;
  const auto part = file.fields("pre_tokenizer");
  if (!part) return steps;
  for_each_step(*part, "pretokenizers", [&steps](const FieldReader& fields, std::string_view type) {
    const auto add_step = [&](PreTokenizerStep step) { add(steps, std::move(step), fields); };
    if (type == "Digits") return add_step(Digits{is_true(fields, "individual_digits")});
    if (type == "Whitespace") return add_step(Whitespace{});
    if (type == "WhitespaceSplit") return add_step(WhitespaceSplit{});
    if (type == "Metaspace") return add_step(read_metaspace(fields));
    if (type == "Punctuation") {
      return add_step(Punctuation{read_behavior(fields).value_or(SplitBehavior::kIsolated)});
    }
    if (type == "ByteLevel") {
      ByteLevel step;
      step.add_prefix_space = is_true(fields, "add_prefix_space");
      step.use_regex = fields.boolean("use_regex").value_or(true);
      return add_step(step);
    }
    if (type == "Split") {
      std::optional<Pattern> pattern = read_pattern(fields);
      const SplitBehavior behavior =
          read_behavior(fields.required()).value_or(SplitBehavior::kIsolated);
      const bool invert = is_true(fields, "invert");
      if (pattern) add_step(Split{std::move(*pattern), behavior, invert});
      return;
    }
    reject_type(
        fields, type,
        "ByteLevel, Split, Digits, Whitespace, WhitespaceSplit, Metaspace, Punctuation, Sequence");
  });
  return steps;
}

std::vector<DecoderStep> read_decoder(const FieldReader& file) {
  std::vector<DecoderStep> steps;
  const auto part = file.fields("decoder");
  if (!part) return steps;
  for_each_step(*part, "decoders", [&steps](const FieldReader& fields, std::string_view type) {
    const auto add_step = [&](DecoderStep step) { add(steps, std::move(step), fields); };
    if (type == "ByteLevel") return add_step(DecodeByteLevel{});
    if (type == "ByteFallback") return add_step(DecodeByteFallback{});
    if (type == "Fuse") return add_step(DecodeFuse{});
    if (type == "Metaspace") {
      const Metaspace metaspace = read_metaspace(fields);
      return add_step(
          DecodeMetaspace{metaspace.replacement, metaspace.prepend != Metaspace::Prepend::kNever});
    }
    if (type == "Strip") {
      constexpr int64_t kMost = 1000;
      return add_step(DecodeStrip{
          read_character(fields, "content"),
          static_cast<std::size_t>(fields.required().integer("start", 0, kMost).value_or(0)),
          static_cast<std::size_t>(fields.required().integer("stop", 0, kMost).value_or(0))});
    }
    if (type == "Replace") {
      std::optional<Pattern> pattern = read_pattern(fields);
      std::string content = read_content(fields, "content");
      if (pattern) add_step(DecodeReplace{std::move(*pattern), std::move(content)});
      return;
    }
    reject_type(fields, type, "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence");
  });
  return steps;
}

}  // namespace slime::text
