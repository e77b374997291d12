#include "engine/http/response_memory.h"

#include <fmt/format.h>

namespace slime::engine {
namespace {

/// The engine's copy of a prompt and the call's.
constexpr std::size_t kCopiesOfPrompt = 2;

/// An expert's number: as it came, as int32, and as base64 of that.
constexpr std::size_t kBytesOfChoice = 12;

std::size_t num_entries(const GenerateUpdate& update) {
  std::size_t count = 0;
  for (const TopLogProbs* top :
       {&update.output_top, &update.output_asked, &update.input_top, &update.input_asked})
    for (const auto& best : *top) count += best.size();
  return count;
}

}  // namespace

std::optional<FinishReason> ResponseShare::grow(std::size_t bytes) {
  if (num_bytes_ + bytes > memory_.call_limit_bytes_) {
    return aborted(FinishReason::Cause::kResponseTooLarge,
                   fmt::format("the response is larger than the {} bytes that one call may hold; "
                               "ask for fewer samples, tokens or log-probs",
                               memory_.call_limit_bytes_));
  }
  if (memory_.num_bytes_.fetch_add(bytes) + bytes > memory_.all_limit_bytes_) {
    memory_.num_bytes_.fetch_sub(bytes);
    return aborted(FinishReason::Cause::kResponsesFull,
                   fmt::format("the server holds the {} bytes of responses that it may; try again "
                               "when other calls are done",
                               memory_.all_limit_bytes_));
  }
  num_bytes_ += bytes;
  return std::nullopt;
}

void ResponseShare::shrink(std::size_t bytes) {
  num_bytes_ -= bytes;
  memory_.num_bytes_.fetch_sub(bytes);
}

std::size_t kept_bytes(const GenerateUpdate& update, const ResponseCost& cost) {
  return update.output_ids.size() * cost.token +
         (update.output_log_probs.size() + update.output_free_log_probs.size() +
          update.input_log_probs.size()) *
             cost.log_prob +
         num_entries(update) * cost.top +
         (update.top_p_ids.size() + update.top_p_counts.size()) * cost.token +
         update.top_p_log_probs.size() * sizeof(float) +
         update.routed_experts.size() * kBytesOfChoice;
}

std::size_t queued_bytes(const GenerateUpdate& update) {
  const auto bytes_of = [](const auto& list) {
    return list.size() * sizeof(typename std::decay_t<decltype(list)>::value_type);
  };
  return sizeof(GenerateUpdate) + bytes_of(update.output_ids) + bytes_of(update.output_log_probs) +
         bytes_of(update.output_free_log_probs) + bytes_of(update.input_log_probs) +
         bytes_of(update.output_top) + bytes_of(update.output_asked) + bytes_of(update.input_top) +
         bytes_of(update.input_asked) + bytes_of(update.top_p_ids) + bytes_of(update.top_p_counts) +
         bytes_of(update.top_p_log_probs) + bytes_of(update.routed_experts) +
         num_entries(update) * sizeof(TopLogProbs::value_type::value_type);
}

std::size_t prompt_bytes(std::span<const GenerateRequest> requests) {
  std::size_t num_tokens = 0;
  for (const GenerateRequest& request : requests) num_tokens += request.input_ids.size();
  return num_tokens * sizeof(TokenId) * kCopiesOfPrompt;
}

}  // namespace slime::engine
