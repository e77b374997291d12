// A share, and the report of its training, as bytes: numbers of this machine's form, vectors with their lengths before them. Both
// ends are the same program on the same host.

#include <cstring>
#include <type_traits>

#include "core/error.h"
#include "core/media_frame.h"
#include "train/rank_report.h"
#include "train/share.h"

namespace slime::train {
namespace {

constexpr uint32_t kVersion = 7;

class Writer {
 public:
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void put(Number number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void put(const std::string& text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  template <typename Number>
  requires std::has_unique_object_representations_v<Number> || std::is_arithmetic_v<Number>
  void put(const std::vector<Number>& numbers) {
    put(static_cast<uint64_t>(numbers.size()));
    bytes_.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void get(Number& number) { std::memcpy(&number, next(sizeof number), sizeof number); }
  /// A byte that is neither 0 nor 1 would be no bool at all.
  void get(bool& value) {
    uint8_t byte = 0;
    get(byte);
    check(byte <= 1, "a bool of a share is 0 or 1");
    value = byte == 1;
  }
  void get(std::string& text) {
    const auto size = count(1);
    text.assign(next(size), size);
  }
  template <typename Number>
  requires std::has_unique_object_representations_v<Number> || std::is_arithmetic_v<Number>
  void get(std::vector<Number>& numbers) {
    numbers.resize(count(sizeof(Number)));
    const std::size_t size = numbers.size() * sizeof(Number);
    if (size > 0) std::memcpy(numbers.data(), next(size), size);
  }
  /// How many things follow; each takes `bytes` at least.
  std::size_t count(std::size_t bytes) {
    uint64_t n = 0;
    get(n);
    check(n <= rest_.size() / bytes, "a share names as many things as it holds");
    return n;
  }
  bool is_done() const { return rest_.empty(); }

 private:
  const char* next(std::size_t size) {
    check(size <= rest_.size(), "a share is whole");
    const char* here = rest_.data();
    rest_.remove_prefix(size);
    return here;
  }
  std::string_view rest_;
};

}  // namespace

std::string to_frame(const BatchShare& share) {
  Writer out;
  out.put(kVersion);
  out.put(share.batch.is_scored_only);
  out.put(share.batch_indices);
  MediaWriter media(out);
  for (const TrainSample& sample : share.batch.samples) {
    each_field(sample, [&](const auto& field) {
      if constexpr (std::is_same_v<decltype(field), const std::vector<MediaSpan>&>) {
        media.put(field);
      } else {
        out.put(field);
      }
    });
  }
  out.put(static_cast<uint64_t>(share.steps.size()));
  for (const StepShare& step : share.steps) {
    out.put(step.num_executions);
    out.put(step.denominator);
    out.put(step.num_micro_batches);
    out.put(step.num_predictions);
    out.put(static_cast<uint64_t>(step.micro_batches.size()));
    for (const Indices& micro_batch : step.micro_batches) out.put(micro_batch);
  }
  return out.take();
}

BatchShare share_from_frame(std::string_view bytes) {
  Reader in(bytes);
  uint32_t version = 0;
  in.get(version);
  check(version == kVersion, "both ends of a share are of one version");
  BatchShare share;
  in.get(share.batch.is_scored_only);
  in.get(share.batch_indices);
  share.batch.samples.resize(share.batch_indices.size());
  MediaReader media(in);
  for (TrainSample& sample : share.batch.samples) {
    each_field(sample, [&](auto& field) {
      if constexpr (std::is_same_v<decltype(field), std::vector<MediaSpan>&>) {
        const bool is_whole = media.get(field, sample.total_length());
        check(is_whole, "a share has media spans of its tokens");
      } else {
        in.get(field);
      }
    });
  }
  share.steps.resize(in.count(sizeof(double)));
  for (StepShare& step : share.steps) {
    in.get(step.num_executions);
    in.get(step.denominator);
    in.get(step.num_micro_batches);
    in.get(step.num_predictions);
    step.micro_batches.resize(in.count(sizeof(uint64_t)));
    for (Indices& micro_batch : step.micro_batches) in.get(micro_batch);
  }
  check(in.is_done(), "a share ends where its bytes do");
  return share;
}

namespace {

void put(Writer& out, const Metrics& metrics) {
  out.put(static_cast<uint64_t>(metrics.size()));
  for (const auto& [name, value] : metrics) {
    out.put(name);
    out.put(value);
  }
}

void get(Reader& in, Metrics& metrics) {
  for (std::size_t left = in.count(sizeof(uint64_t) + sizeof(double)); left > 0; --left) {
    std::string name;
    in.get(name);
    check(metrics.empty() || metrics.rbegin()->first < name, "metrics come in order, each once");
    in.get(metrics[name]);
  }
}

}  // namespace

std::string to_frame(const TrainReport& report) {
  Writer out;
  out.put(kVersion);
  out.put(static_cast<uint64_t>(report.steps.size()));
  for (const StepReport& step : report.steps) {
    out.put(step.step);
    put(out, step.metrics);
    out.put(step.skipped);
    out.put(step.critic_skipped);
  }
  out.put(report.stopped);
  out.put(static_cast<uint64_t>(report.log_probs.size()));
  for (const std::vector<float>& sample : report.log_probs) out.put(sample);
  out.put(report.advantages);
  put(out, report.rollout);
  put(out, report.perf);
  out.put(report.num_tokens);
  out.put(report.num_computed_tokens);
  return out.take();
}

TrainReport report_from_frame(std::string_view bytes) {
  Reader in(bytes);
  uint32_t version = 0;
  in.get(version);
  check(version == kVersion, "both ends of a report are of one version");
  TrainReport report;
  report.steps.resize(in.count(sizeof(int64_t) + 3 * sizeof(uint64_t)));
  for (StepReport& step : report.steps) {
    in.get(step.step);
    get(in, step.metrics);
    in.get(step.skipped);
    in.get(step.critic_skipped);
  }
  in.get(report.stopped);
  report.log_probs.resize(in.count(sizeof(uint64_t)));
  for (std::vector<float>& sample : report.log_probs) in.get(sample);
  in.get(report.advantages);
  get(in, report.rollout);
  get(in, report.perf);
  in.get(report.num_tokens);
  in.get(report.num_computed_tokens);
  check(in.is_done(), "a report ends where its bytes do");
  return report;
}

}  // namespace slime::train
