#include "engine/stop_checker.h"

#include <algorithm>

namespace slime::engine {
namespace {

template <typename T>
FinishReason stopped_by(const T& matched) {
  FinishReason reason;
  reason.kind = FinishReason::Kind::kStop;
  reason.matched = matched;
  return reason;
}

}  // namespace

StopChecker::StopChecker(const SamplingParams& params, const std::vector<TokenId>& eos_ids,
                         const TokenBytesFn& token_bytes)
    : params_(params), eos_ids_(eos_ids), token_bytes_(token_bytes) {
  for (const std::string& stop : params.stop) longest_stop_ = std::max(longest_stop_, stop.size());
}

bool StopChecker::is_stop_id(TokenId id) const {
  const auto has = [id](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return has(params_.stop_token_ids) || (!params_.ignore_eos && has(eos_ids_));
}

std::optional<FinishReason> StopChecker::push(TokenId id) {
  ++num_pushed_;
  if (is_stop_id(id)) return stopped_by(id);
  if (longest_stop_ == 0) return std::nullopt;
  const std::size_t num_old = tail_.size();
  tail_ += token_bytes_(id);
  const bool may_end = num_pushed_ >= params_.min_new_tokens;
  for (std::size_t i = 0; may_end && i < params_.stop.size(); ++i) {
    const std::string& stop = params_.stop[i];
    // One that ended in earlier tokens came too soon, and ends nothing now.
    const std::size_t first = num_old < stop.size() ? 0 : num_old - stop.size() + 1;
    if (tail_.find(stop, first) != std::string::npos) return stopped_by(stop);
  }
  forget_old_bytes();
  return std::nullopt;
}

void StopChecker::recall(std::span<const TokenId> ids) {
  if (longest_stop_ == 0) return;
  for (const TokenId id : ids) {
    tail_ += token_bytes_(id);
    forget_old_bytes();
  }
}

void StopChecker::forget_old_bytes() {
  if (tail_.size() >= longest_stop_) tail_.erase(0, tail_.size() - (longest_stop_ - 1));
}

}  // namespace slime::engine
