#include "report/event_file.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/crc32c.h"

namespace slime::report {
namespace {

static_assert(std::endian::native == std::endian::little,
              "records are written in the machine's byte order");

// Field numbers of tensorflow.Event and tensorflow.Summary.
constexpr uint32_t kEventWallTime = 1;     // double
constexpr uint32_t kEventStep = 2;         // int64
constexpr uint32_t kEventFileVersion = 3;  // string
constexpr uint32_t kEventSummary = 5;      // message Summary
constexpr uint32_t kSummaryValue = 1;      // repeated message Value
constexpr uint32_t kValueTag = 1;          // string
constexpr uint32_t kValueSimple = 2;       // float
constexpr uint32_t kValueHistogram = 5;    // message HistogramProto
constexpr uint32_t kValueTensor = 8;       // message TensorProto
constexpr uint32_t kValueMetadata = 9;     // message SummaryMetadata
// SummaryMetadata, and its PluginData.
constexpr uint32_t kMetadataPlugin = 1;
constexpr uint32_t kMetadataClass = 4;  // enum DataClass
constexpr uint64_t kClassTensor = 2;
constexpr uint32_t kPluginName = 1;
constexpr uint32_t kPluginContent = 2;
// TensorProto.
constexpr uint32_t kTensorType = 1;  // enum DataType
constexpr uint64_t kTypeString = 7;
constexpr uint32_t kTensorShape = 2;
constexpr uint32_t kTensorStrings = 8;
// HParamsPluginData, its SessionStartInfo (a map: entries of key and value) and google.protobuf.Value.
constexpr uint32_t kHparamsStart = 3;
constexpr uint32_t kStartHparams = 1;
constexpr uint32_t kStartSeconds = 5;  // double
constexpr uint32_t kEntryKey = 1;
constexpr uint32_t kEntryValue = 2;
constexpr uint32_t kOfNumber = 2;  // double
constexpr uint32_t kOfText = 3;
constexpr uint32_t kOfBool = 4;
constexpr std::size_t kLongestSetting = 500;

// Wire types of protocol buffers.
constexpr uint32_t kVarint = 0;
constexpr uint32_t kFixed64 = 1;
constexpr uint32_t kBytes = 2;
constexpr uint32_t kFixed32 = 5;

constexpr std::size_t kHeaderBytes = sizeof(uint64_t) + sizeof(uint32_t);
constexpr std::size_t kFooterBytes = sizeof(uint32_t);

template <typename T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T raw_at(std::string_view bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_key(std::string& out, uint32_t field, uint32_t wire_type) {
  append_varint(out, field << 3 | wire_type);
}

void append_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

/// The mask of TFRecord: a checksum stored beside data that may itself contain checksums.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xA282EAD8u;
}

std::string framed(std::string_view payload) {
  std::string record;
  record.reserve(kHeaderBytes + payload.size() + kFooterBytes);
  append_raw(record, static_cast<uint64_t>(payload.size()));
  append_raw(record, masked_crc(record));
  record.append(payload);
  append_raw(record, masked_crc(payload));
  return record;
}

std::string event_header(double unix_seconds) {
  std::string event;
  append_key(event, kEventWallTime, kFixed64);
  append_raw(event, unix_seconds);
  return event;
}

void append_double(std::string& out, uint32_t field, double number) {
  append_key(out, field, kFixed64);
  append_raw(out, number);
}

void append_packed(std::string& out, uint32_t field, const std::vector<double>& numbers) {
  std::string packed;
  for (const double number : numbers) append_raw(packed, number);
  append_bytes(out, field, packed);
}

std::string summary_record(double unix_seconds, int64_t step, std::string_view summary) {
  std::string event = event_header(unix_seconds);
  append_key(event, kEventStep, kVarint);
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, kEventSummary, summary);
  return framed(event);
}

/// SummaryMetadata of a tensor that a plug-in shows.
std::string metadata_of(std::string_view plugin, std::string_view content = {}) {
  std::string data, metadata;
  append_bytes(data, kPluginName, plugin);
  if (!content.empty()) append_bytes(data, kPluginContent, content);
  append_bytes(metadata, kMetadataPlugin, data);
  append_key(metadata, kMetadataClass, kVarint);
  append_varint(metadata, kClassTensor);
  return metadata;
}

std::string histogram_value(const Distribution& distribution) {
  double count = 0;
  for (const double each : distribution.counts) count += each;
  std::string histogram, value;
  append_double(histogram, 1, distribution.min);
  append_double(histogram, 2, distribution.max);
  append_double(histogram, 3, count);
  append_double(histogram, 4, distribution.sum);
  append_double(histogram, 5, distribution.sum_squares);
  append_packed(histogram, 6, distribution.limits);
  append_packed(histogram, 7, distribution.counts);
  append_bytes(value, kValueTag, distribution.name);
  append_bytes(value, kValueHistogram, histogram);
  return value;
}

/// As an indented block of Markdown, which no text can end.
std::string code_block(std::string_view text) {
  std::string block = "    ";
  for (const char letter : text) {
    block += letter;
    if (letter == '\n') block += "    ";
  }
  return block;
}

std::string markdown_of(const std::vector<ShownSample>& samples) {
  std::string text;
  for (const ShownSample& sample : samples) {
    text += fmt::format("**Sample {}**: {}", sample.ordinal, sample.status);
    if (sample.reward) text += fmt::format(", reward {:.6g}", *sample.reward);
    if (sample.advantage) text += fmt::format(", advantage {:.6g}", *sample.advantage);
    text +=
        fmt::format(", {} tokens\n\nPrompt:\n\n{}\n\nResponse:\n\n{}\n\n", sample.response_length,
                    code_block(sample.prompt), code_block(sample.response));
  }
  return text;
}

std::string text_value(std::string_view tag, std::string_view text) {
  std::string tensor, value;
  append_key(tensor, kTensorType, kVarint);
  append_varint(tensor, kTypeString);
  append_bytes(tensor, kTensorShape, "");  // a scalar
  append_bytes(tensor, kTensorStrings, text);
  append_bytes(value, kValueTag, tag);
  append_bytes(value, kValueTensor, tensor);
  append_bytes(value, kValueMetadata, metadata_of("text"));
  return value;
}

std::string setting_text(const json::value& setting) {
  if (setting.is_string()) return std::string(setting.get_string());
  const json::array* words = setting.if_array();
  if (words == nullptr) return json_text(setting);
  std::string text;
  for (const json::value& word : *words) text += (text.empty() ? "" : " ") + setting_text(word);
  return text;
}

/// google.protobuf.Value.
std::string setting_value(const json::value& setting) {
  std::string value;
  if (setting.is_bool()) {
    append_key(value, kOfBool, kVarint);
    append_varint(value, setting.get_bool() ? 1 : 0);
    return value;
  }
  const std::string text = setting_text(setting);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(number)) {
    append_double(value, kOfNumber, number);
  } else {
    append_bytes(value, kOfText, shortened(text, kLongestSetting));
  }
  return value;
}

/// The step of an event of ours: the wall time (9 bytes) comes first, then the step unless it is
/// the version record.
int64_t step_of(std::string_view event) {
  constexpr std::size_t kWallTimeBytes = 1 + sizeof(double);
  if (event.size() <= kWallTimeBytes || event[kWallTimeBytes] != (kEventStep << 3 | kVarint))
    return 0;
  uint64_t step = 0;
  int shift = 0;
  for (std::size_t i = kWallTimeBytes + 1; i < event.size() && shift < 64; ++i, shift += 7) {
    step |= static_cast<uint64_t>(event[i] & 0x7F) << shift;
    if ((event[i] & 0x80) == 0) break;
  }
  return static_cast<int64_t>(step);
}

}  // namespace

std::string file_version_record(double unix_seconds) {
  std::string event = event_header(unix_seconds);
  append_bytes(event, kEventFileVersion, "brain.Event:2");
  return framed(event);
}

std::string scalars_record(double unix_seconds, int64_t step, const Metrics& metrics) {
  std::string summary;
  for (const auto& [name, number] : metrics) {
    std::string value;
    append_bytes(value, kValueTag, name);
    append_key(value, kValueSimple, kFixed32);
    append_raw(value, static_cast<float>(number));
    append_bytes(summary, kSummaryValue, value);
  }
  return summary_record(unix_seconds, step, summary);
}

std::string details_record(double unix_seconds, int64_t step, const StepDetails& details) {
  std::string summary;
  for (const Distribution& distribution : details.distributions)
    append_bytes(summary, kSummaryValue, histogram_value(distribution));
  if (!details.samples.empty()) {
    append_bytes(summary, kSummaryValue,
                 text_value("rollout/samples", markdown_of(details.samples)));
  }
  return summary_record(unix_seconds, step, summary);
}

std::string hparams_record(double unix_seconds, const json::object& settings) {
  std::string start, content, value, summary;
  for (const auto& setting : settings) {
    std::string entry;
    append_bytes(entry, kEntryKey, setting.key());
    append_bytes(entry, kEntryValue, setting_value(setting.value()));
    append_bytes(start, kStartHparams, entry);
  }
  append_double(start, kStartSeconds, unix_seconds);
  append_bytes(content, kHparamsStart, start);
  append_bytes(value, kValueTag, "_hparams_/session_start_info");
  append_bytes(value, kValueMetadata, metadata_of("hparams", content));
  append_bytes(summary, kSummaryValue, value);
  return summary_record(unix_seconds, 0, summary);
}

std::optional<EventRecord> read_event_record(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes + kFooterBytes) return std::nullopt;
  const auto length = raw_at<uint64_t>(bytes, 0);
  if (raw_at<uint32_t>(bytes, sizeof(uint64_t)) != masked_crc(bytes.substr(0, sizeof(uint64_t))))
    return std::nullopt;
  if (length > bytes.size() - kHeaderBytes - kFooterBytes) return std::nullopt;
  const std::string_view payload = bytes.substr(kHeaderBytes, length);
  if (raw_at<uint32_t>(bytes, kHeaderBytes + length) != masked_crc(payload)) return std::nullopt;
  // Others have times and numbers of the rollout.
  const bool is_of_update = payload.find("train/step") != std::string_view::npos &&
                            payload.find("perf/") == std::string_view::npos &&
                            payload.find("rollout/") == std::string_view::npos;
  return EventRecord{.step = step_of(payload),
                     .size_bytes = kHeaderBytes + length + kFooterBytes,
                     .is_of_update = is_of_update};
}

}  // namespace slime::report
