#include "text/messages/parameter_writer.h"

#include <algorithm>

#include "text/messages/json_arguments.h"
#include "text/messages/white_space.h"

namespace slime::text {
namespace {

/// Where the first value of a tag ends.
std::size_t tag_value_end(std::string_view tag) {
  if (tag.empty() || (tag.front() != '"' && tag.front() != '\''))
    return std::min(tag.find_first_of(kWhiteSpace), tag.size());
  const auto quote = tag.find(tag.front(), 1);
  return quote == std::string_view::npos ? tag.size() : quote + 1;
}

}  // namespace

std::string_view tag_value(std::string_view tag) {
  tag = without_white_space_around(tag);
  // Without quotes all of it is the value.
  if (tag.empty() || (tag.front() != '"' && tag.front() != '\'')) return tag;
  const char quote = tag.front();
  tag = tag.substr(1, tag_value_end(tag) - 1);
  if (tag.ends_with(quote)) tag.remove_suffix(1);
  return tag;
}

void ParameterWriter::begin_call(std::string_view tool) {
  tool_ = tool;
  has_parameters_ = false;
}

void ParameterWriter::begin_value(std::string_view key, uint64_t at) {
  key = without_white_space_around(key);
  begin(key, tools_.types_of(tool_, key), at);
}

void ParameterWriter::begin_value_of_tag(std::string_view tag, uint64_t at) {
  tag = without_white_space_around(tag);
  const std::string_view key = tag_value(tag);
  const std::string_view attributes = tag.substr(std::min(tag.size(), tag_value_end(tag)));
  uint8_t types = tools_.types_of(tool_, key);
  if (attributes.find("string=\"true\"") != std::string_view::npos) types = JsonTypes::kString;
  if (attributes.find("string=\"false\"") != std::string_view::npos)
    types = static_cast<uint8_t>(~JsonTypes::kString);
  begin(key, types, at);
}

void ParameterWriter::begin(std::string_view key, uint8_t types, uint64_t at) {
  key_ = key;
  types_ = types;
  begin_ = at;
  value_.clear();
  is_value_begun_ = has_newline_ = false;
}

void ParameterWriter::value(std::string_view text, uint64_t at) {
  if (text.empty()) return;
  const uint64_t end = at + text.size();
  const bool is_first = !is_value_begun_;
  is_value_begun_ = true;
  std::string json;
  const bool is_string = types_ == JsonTypes::kString;
  if (is_first && is_string) write_key(json);
  if (is_first && has_newlines_ && text.front() == '\n') text.remove_prefix(1);
  std::string newline;  // the one that waited: it is part of the value
  if (has_newline_ && !text.empty()) newline = "\n";
  if (!text.empty()) has_newline_ = false;
  if (has_newlines_ && text.ends_with('\n')) {
    has_newline_ = true;
    text.remove_suffix(1);
  }
  if (is_string) {
    append_json_escaped(newline, json);
    append_json_escaped(text, json);
    writer_.arguments(json, {is_first ? begin_ : at, end});
  } else {
    value_ += newline;
    value_ += text;
  }
}

void ParameterWriter::end_value(uint64_t at) {
  std::string json;
  if (types_ != JsonTypes::kString) {
    write_key(json);
    json += parameter_json(value_, types_);
  } else {
    if (!is_value_begun_) write_key(json);
    json += '"';
  }
  writer_.arguments(json, {begin_, at});
}

void ParameterWriter::end_call(uint64_t at) {
  writer_.arguments(has_parameters_ ? "}" : "{}", {at - 1, at});
}

/// With the quote that begins a string.
void ParameterWriter::write_key(std::string& json) {
  json += has_parameters_ ? ", \"" : "{\"";
  has_parameters_ = true;
  append_json_escaped(key_, json);
  json += types_ == JsonTypes::kString ? "\": \"" : "\": ";
}

}  // namespace slime::text
