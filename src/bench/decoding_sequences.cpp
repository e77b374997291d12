#include "bench/decoding_sequences.h"

#include <algorithm>
#include <utility>

#include "bench/harness.h"
#include "bench/random_tokens.h"
#include "core/error.h"

namespace slime::bench {

DecodingSequences::DecodingSequences(engine::EngineClient& engine, const Clock& clock,
                                     DecodingOptions options)
    : engine_(engine),
      clock_(clock),
      adapter_(std::move(options.adapter)),
      sequences_(static_cast<std::size_t>(options.sequences)) {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].left = options.max_new_tokens;
    append_random_tokens(sequences_[i].tokens, options.prompt_tokens, options.vocab_size, 5,
                         static_cast<int64_t>(i));
  }
  num_open_ = options.sequences;
  for (std::size_t i = 0; i < sequences_.size(); ++i) submit(i);
}

void DecodingSequences::wait_for_steps(int64_t more) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return all_have_begun() || !failure_.empty(); });
  const int64_t goal = num_steps_ + more;
  changed_.wait(lock, [&] { return num_steps_ >= goal || !failure_.empty(); });
  if (!failure_.empty()) throw ConfigError(failure_);
}

void DecodingSequences::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  engine_.abort_all();  // one that shuts down ends them too
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_open_ == 0; });
}

std::vector<StepGap> DecodingSequences::gaps() const {
  const std::lock_guard lock(mutex_);
  return gaps_;
}

std::vector<StepGap> DecodingSequences::gaps_since(Clock::TimePoint begin) const {
  const std::lock_guard lock(mutex_);
  const auto first = std::ranges::lower_bound(gaps_, begin, {}, &StepGap::end);
  return {first, gaps_.end()};
}

Clock::TimePoint DecodingSequences::first_token_of(WeightVersion version) const {
  const std::lock_guard lock(mutex_);
  const auto found = first_tokens_.find(version);
  return found == first_tokens_.end() ? Clock::TimePoint{} : found->second;
}

void DecodingSequences::submit(std::size_t index) {
  engine::GenerateRequest request;
  request.input_ids = sequences_[index].tokens;
  request.sampling.max_new_tokens = sequences_[index].left;
  request.sampling.ignore_eos = true;
  request.return_logprob = true;
  request.adapter = adapter_;
  engine_.submit(std::move(request),
                 [this, index](const engine::GenerateUpdate& update) { take(index, update); });
}

void DecodingSequences::take(std::size_t index, const engine::GenerateUpdate& update) {
  const Clock::TimePoint now = clock_.now();
  bool goes_on = false;
  {
    const std::lock_guard lock(mutex_);
    Sequence& sequence = sequences_[index];
    if (!update.output_ids.empty()) note_token(sequence, update.versions.back().version, now);
    sequence.tokens.insert(sequence.tokens.end(), update.output_ids.begin(),
                           update.output_ids.end());
    sequence.left -= static_cast<int64_t>(update.output_ids.size());
    if (update.finish) {
      const bool was_asked = update.finish->kind == engine::FinishReason::Kind::kAbort &&
                             update.finish->cause == engine::FinishReason::Cause::kRequested;
      goes_on = was_asked && !is_stopping_;
      if (!was_asked && failure_.empty())
        failure_ = "a sequence ended by itself: " + update.finish->message;
      num_open_ -= goes_on ? 0 : 1;
      changed_.notify_all();
    }
  }
  if (goes_on) submit(index);
}

void DecodingSequences::note_token(Sequence& sequence, WeightVersion version,
                                   Clock::TimePoint now) {
  num_begun_ += sequence.in_step < 0 ? 1 : 0;
  first_tokens_.try_emplace(version, now);
  if (sequence.in_step == num_steps_ || version != version_) {
    if (all_have_begun() && !is_stopping_) {
      if (has_full_step_) {
        gaps_.push_back({.end = now,
                         .seconds = seconds_between(last_token_, now),
                         .changes_version = version != version_});
      }
      has_full_step_ = true;
    }
    ++num_steps_;
    changed_.notify_all();
  }
  sequence.in_step = num_steps_;
  version_ = version;
  last_token_ = now;
}

namespace {

std::vector<double> within_versions(const std::vector<StepGap>& gaps) {
  std::vector<double> within;
  for (const StepGap& gap : gaps) {
    if (!gap.changes_version) within.push_back(gap.seconds);
  }
  return within;
}

double median_beside(const std::vector<double>& within, std::size_t position) {
  constexpr std::size_t kBeside = 8;
  const auto at = [&](std::size_t index) {
    return within.begin() + static_cast<std::ptrdiff_t>(std::min(index, within.size()));
  };
  return median({at(position < kBeside ? 0 : position - kBeside), at(position + kBeside)});
}

}  // namespace

double normal_step_ms(const std::vector<StepGap>& gaps) {
  return 1e3 * median(within_versions(gaps));
}

std::vector<double> pauses_ms(const std::vector<StepGap>& gaps) {
  const std::vector<double> within = within_versions(gaps);
  std::vector<double> pauses;
  std::size_t position = 0;  // among those within versions
  for (const StepGap& gap : gaps) {
    if (!gap.changes_version) {
      ++position;
      continue;
    }
    pauses.push_back(1e3 * std::max(0.0, gap.seconds - median_beside(within, position)));
  }
  return pauses;
}

double largest(const std::vector<double>& numbers) {
  return numbers.empty() ? 0 : *std::ranges::max_element(numbers);
}

}  // namespace slime::bench
