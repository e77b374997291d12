#include "report/event_file.h"

#include <bit>
#include <cstring>

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
  std::string event = event_header(unix_seconds);
  append_key(event, kEventStep, kVarint);
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, kEventSummary, summary);
  return framed(event);
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
