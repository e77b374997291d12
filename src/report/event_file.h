#pragma once

/// TensorBoard event files, written without TensorFlow.
///
/// The file is a sequence of TFRecords (tensorflow/core/lib/io/record_writer.h):
///
///   uint64 length | uint32 masked CRC-32C of those 8 bytes | payload
///                 | uint32 masked CRC-32C of the payload
///
/// little-endian; each payload is a serialised `Event` protocol buffer
/// (tensorflow/core/util/event.proto). We write the file version, once, and Summaries: per step one whose
/// values are `simple_value`s, and one of histograms and text (plug-in "text"); once the settings of the run
/// (plug-in "hparams").

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "report/metrics.h"
#include "report/step_details.h"

namespace slime::report {

/// The record that starts each event file.
std::string file_version_record(double unix_seconds);

/// One record with all `metrics` of a step. Numbers become float32; those that are not finite are
/// kept (TensorBoard marks them).
std::string scalars_record(double unix_seconds, int64_t step, const Metrics& metrics);

/// One record with the histograms and the sampled text of a step (tag rollout/samples, Markdown).
std::string details_record(double unix_seconds, int64_t step, const StepDetails& details);

/// The record of the run's settings, as TensorBoard's hparams page compares runs by them: numbers, words that
/// are numbers too, booleans and text; of a list its words.
std::string hparams_record(double unix_seconds, const json::object& settings);

/// One record taken from the front of a file.
struct EventRecord {
  int64_t step = 0;
  std::size_t size_bytes = 0;  // of the whole record, framing included
  bool is_of_update = false;   // numbers of an optimizer update alone, whose `step` is train/step
};

/// The record at the start of `bytes`; empty at the end of the file, for a torn record and for a
/// wrong checksum.
std::optional<EventRecord> read_event_record(std::string_view bytes);

}  // namespace slime::report
