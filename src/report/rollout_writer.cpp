#include "report/rollout_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "report/rollout_archive.h"
#include "report/rollout_files.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMegabyte = uint64_t{1} << 20;
constexpr double kGigabyte = 1 << 30;
/// Small steps may gather: an almost idle disk is no reason to leave one out.
constexpr uint64_t kMostWaiting = 64 * kMegabyte;
constexpr uint64_t kMostDumps = 1024 * kMegabyte;

/// Of the heads of samplers, which dumps alone have: at 128 numbers a token they would be most of a report.
uint64_t head_bytes(const Sample& sample) {
  return 8 * sample.topk_ids.size() + 12 * sample.topk_log_probs.size();
}

void forget_heads(Group& group) {
  for (Sample& sample : group.samples) {
    sample.topk_ids = {};
    sample.topk_log_probs = {};
  }
}

uint64_t report_bytes(const Group& group) {
  uint64_t bytes = 0;
  for (const Sample& sample : group.samples) bytes += slime::report::report_bytes(sample);
  return bytes;
}

}  // namespace

uint64_t report_bytes(const Sample& sample) {
  // Ids, two log-probs, the mask and the text of each token, as JSON.
  constexpr uint64_t kOfPromptToken = 12, kOfResponseToken = 64, kOfSample = 512;
  return kOfSample + kOfPromptToken * static_cast<uint64_t>(sample.prompt_length) +
         kOfResponseToken * static_cast<uint64_t>(std::max<int64_t>(sample.response_length(), 0)) +
         8 * sample.top_p_ids.size() + 12 * sample.top_p_log_probs.size() +
         4 * sample.routed_experts.size();
}

std::vector<std::size_t> groups_within(std::span<const uint64_t> sizes, uint64_t limit) {
  uint64_t total = 0;
  for (const uint64_t size : sizes) total += size;
  std::vector<std::size_t> kept;
  // Half a step from the first: the middle of each stretch of groups stands for it.
  const double share =
      total <= limit ? 1.0 : static_cast<double>(limit) / static_cast<double>(total);
  double due = share < 1 ? 0.5 : 0.0;
  uint64_t bytes = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    due += share;
    if (due < 1) continue;
    due -= 1;
    if (!kept.empty() && bytes + sizes[i] > limit) continue;
    bytes += sizes[i];
    kept.push_back(i);
  }
  if (kept.empty() && !sizes.empty()) kept.push_back(sizes.size() / 2);
  return kept;
}

RolloutWriter::RolloutWriter(const config::RunConfig& config, const RunFolder& folder,
                             const text::Tokenizer& tokenizer,
                             std::function<void(const std::string&)> tell)
    : folder_(folder),
      tokenizer_(tokenizer),
      tell_(std::move(tell)),
      dump_path_(config.save_debug_rollout_data),
      writes_for_report_(!config.no_save_rollouts && !config.trains_on_rows()),
      step_megabytes_(config.rollout_files_mb_per_step),
      all_gigabytes_(config.rollout_files_gb),
      thread_([this] { run(); }) {}

RolloutWriter::~RolloutWriter() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
}

void RolloutWriter::write(int64_t step, const Collected& collected,
                          const train::TrainReport* report) {
  throw_failure();
  if (!dump_path_.empty())
    put({.path = numbered_path(dump_path_, step),
         .step = step,
         .groups = collected.groups,
         .log_probs = {}});
  if (!writes_for_report_) return;
  std::vector<uint64_t> sizes;
  for (const Group& group : collected.groups) sizes.push_back(report_bytes(group));
  const auto limit = static_cast<uint64_t>(step_megabytes_ * static_cast<double>(kMegabyte));
  const std::vector<std::size_t> kept = groups_within(sizes, limit);
  Job job{.path = folder_.rollouts(step),
          .step = step,
          .groups = {},
          .log_probs = {},
          .is_for_report = true};
  for (const std::size_t i : kept) job.bytes += sizes[i];
  {
    const std::lock_guard lock(mutex_);
    if (!jobs_.empty() && waiting_bytes_ + job.bytes > std::max(limit, kMostWaiting)) {
      tell_once(told_busy_,
                fmt::format("{}: left out, since those of earlier steps still wait to be written; "
                            "so it is from now on wherever the disk is behind",
                            job.path.string()));
      return;
    }
  }
  if (kept.size() < sizes.size()) {
    tell_once(told_share_,
              fmt::format("{}: {} of {} groups, from now on as many as fit "
                          "--rollout-files-mb-per-step {:g}",
                          job.path.string(), kept.size(), sizes.size(), step_megabytes_));
  }
  // By place: several samples may have one ordinal; the trainer keeps the order of the groups.
  std::size_t first = 0;
  auto next = kept.begin();
  for (std::size_t i = 0; i < collected.groups.size(); ++i) {
    const Group& group = collected.groups[i];
    if (next != kept.end() && *next == i) {
      ++next;
      job.groups.push_back(group);
      forget_heads(job.groups.back());
      for (std::size_t k = 0; report != nullptr && k < group.samples.size(); ++k)
        job.log_probs.push_back(report->log_probs.at(first + k));
    }
    first += group.samples.size();
  }
  put(std::move(job));
}

fs::path RolloutWriter::write_skipped(int64_t step, const Collected& collected) {
  fs::path path = folder_.skipped(step);
  put({.path = path, .step = step, .groups = collected.groups, .log_probs = {}});
  return path;
}

/// Waits where dumps are far behind.
void RolloutWriter::put(Job job) {
  if (job.bytes == 0)
    for (const Group& group : job.groups) {
      job.bytes += report_bytes(group);
      for (const Sample& sample : group.samples) job.bytes += head_bytes(sample);
    }
  std::unique_lock lock(mutex_);
  if (!job.is_for_report)
    changed_.wait(lock, [&] { return jobs_.empty() || waiting_bytes_ + job.bytes <= kMostDumps; });
  waiting_bytes_ += job.bytes;
  jobs_.push_back(std::move(job));
  lock.unlock();
  changed_.notify_all();
}

void RolloutWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job& job = jobs_.front();  // a deque keeps it in its place
    lock.unlock();
    std::exception_ptr failure;
    try {
      write_file(job);
    } catch (const std::exception& error) {
      if (job.is_for_report) {
        tell_once(told_failed_, fmt::format("{}; the report will lack rollouts", error.what()));
      } else {
        failure = std::current_exception();
      }
    }
    lock.lock();
    if (failure && !failure_) failure_ = failure;
    waiting_bytes_ -= jobs_.front().bytes;
    jobs_.pop_front();
    changed_.notify_all();
  }
}

void RolloutWriter::write_file(const Job& job) {
  if (!job.is_for_report && has_archive_name(job.path))
    return write_archive(job.path, job.step, job.groups);
  if (!job.is_for_report) return write_samples(job.path, job.groups);
  const auto texts = [this](const Sample& sample) {
    text::StreamDetokenizer stream(tokenizer_);
    std::vector<std::string> pieces;
    for (int64_t i = sample.prompt_length; i < static_cast<int64_t>(sample.tokens.size()); ++i)
      pieces.push_back(stream.push(sample.tokens[static_cast<std::size_t>(i)]));
    return pieces;
  };
  std::map<const Sample*, const std::vector<float>*> log_probs;
  std::size_t i = 0;
  for (const Group& group : job.groups) {
    for (const Sample& sample : group.samples)
      if (!job.log_probs.empty()) log_probs[&sample] = &job.log_probs[i++];
  }
  const auto train_log_probs = [&](const Sample& sample) {
    return log_probs.contains(&sample) ? *log_probs[&sample] : std::vector<float>{};
  };
  write_samples(job.path, job.groups, {.train_log_probs = train_log_probs, .token_texts = texts});
  keep_newest();
}

void RolloutWriter::keep_newest() {
  std::vector<std::pair<fs::path, uint64_t>> files;  // by name, which is by step
  std::error_code gone;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder_.root() / "rollouts", gone)) {
    const uint64_t size = entry.file_size(gone);
    if (!gone && entry.path().filename().string().starts_with("step_"))
      files.emplace_back(entry.path(), size);
  }
  std::ranges::sort(files);
  uint64_t total = 0;
  for (const auto& [path, size] : files) total += size;
  const auto limit = static_cast<uint64_t>(all_gigabytes_ * kGigabyte);
  for (std::size_t i = 0; i + 1 < files.size() && total > limit; ++i) {
    fs::remove(files[i].first, gone);
    total -= files[i].second;
    tell_once(told_full_, fmt::format("{}: beyond --rollout-files-gb {:g} the oldest steps' files "
                                      "are removed",
                                      (folder_.root() / "rollouts").string(), all_gigabytes_));
  }
}

void RolloutWriter::drain() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.empty(); });
  }
  throw_failure();
}

void RolloutWriter::throw_failure() {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    failure = std::exchange(failure_, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

void RolloutWriter::tell_once(bool& told, const std::string& text) const {
  if (!std::exchange(told, true)) tell_(text);
}

}  // namespace slime::report
