#pragma once

/// Query of a table of samples: which of a run's samples, in which order, and which part of that list.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "net/http_message.h"
#include "view/sample_index.h"

namespace slime::view {

enum class SampleOrder { kFile, kReward, kLength, kDifference, kVersion };

struct SampleQuery {
  std::optional<int64_t> step;       // one step; none: all
  std::optional<int64_t> last_step;  // of all steps, those up to it
  std::optional<double> reward;      // exactly
  std::optional<Status> status;
  std::optional<int32_t> version;  // that made some of its tokens
  std::optional<int64_t> group;
  bool is_dead = false;  // only of groups with equal rewards
  std::string text;      // in prompt or response, without regard to ASCII case
  SampleOrder order = SampleOrder::kFile;
  bool is_descending = false;
  std::size_t offset = 0;
  std::size_t limit = 100;

  static constexpr std::size_t kMostRows = 200;
  static constexpr std::size_t kLongestText = 200;  // bytes
};

/// Reads the query of a URL: step, last_step, reward, status, version, group, dead, text, sort ("length-"),
/// offset, limit. Throws ConfigError that names what is wrong.
SampleQuery read_query(const net::HttpRequest& request);

struct FoundSample {
  uint32_t step = 0;   // index into FoundSamples::steps
  uint32_t entry = 0;  // index into its entries
};

/// All that match, in order, from the steps that have an index.
struct FoundSamples {
  std::vector<SampleIndex::Step> steps;
  std::vector<FoundSample> samples;
  /// Of a search for text, which reads files: the step that it would read next, when its time was over.
  std::optional<int64_t> next_step;

  const IndexedStep& step_of(const FoundSample& sample) const { return *steps[sample.step]; }
  const SampleEntry& entry_of(const FoundSample& sample) const {
    return steps[sample.step]->entries[sample.entry];
  }
};

/// A step that the query names is indexed now. `budget`: of a search for text.
FoundSamples find_samples(SampleIndex& index, const SampleQuery& query,
                          std::chrono::milliseconds budget = std::chrono::milliseconds(1500));

}  // namespace slime::view
