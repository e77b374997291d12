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
  if (is_stop_id(id)) return stopped_by(id);
  if (longest_stop_ == 0) return std::nullopt;
  tail_ += token_bytes_(id);
  for (const std::string& stop : params_.stop) {
    if (tail_.find(stop) != std::string::npos) return stopped_by(stop);
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
