#include "engine/drafts/prompt_texts.h"

#include <algorithm>
#include <utility>

namespace slime::engine {
namespace {

constexpr int64_t kPiece = 64;  // tokens a call

}  // namespace

PromptTexts::PromptTexts(std::span<const TokenId> prompt, std::string_view salt)
    : prompt_(prompt.begin(), prompt.end()), salt_(salt), index_(std::make_unique<SuffixIndex>()) {
  index_->begin();
}

PromptTexts::Handle PromptTexts::begin() {
  if (is_full()) forget_ended();
  running_.push_back({.text = index_->begin(prompt_)});
  return std::prev(running_.end());
}

void PromptTexts::end(Handle response) {
  ended_.splice(ended_.end(), running_, response);
  if (std::ssize(ended_) <= kMostEnded || next_ != nullptr) return;
  while (std::ssize(ended_) > kMostEnded / 2) ended_.pop_front();
  next_ = std::make_unique<SuffixIndex>();
  next_->begin();
}

void PromptTexts::forget_ended() {
  ended_.clear();
  next_.reset();
  index_ = std::make_unique<SuffixIndex>();
  index_->begin();
  for (Response& each : running_) each = {.text = index_->begin(prompt_)};
}

void PromptTexts::follow(Handle response, std::span<const TokenId> tokens) {
  int64_t budget = kPiece;
  for (int64_t i = index_->size(response->text); i < std::ssize(tokens) && budget > 0; ++i) {
    if (index_->is_full()) return;
    index_->append(response->text, tokens[i]);
    --budget;
  }
  budget = index_prompt(*index_, budget);
  if (next_ != nullptr && budget > 0) fill_next(budget);
}

int64_t PromptTexts::index_prompt(SuffixIndex& index, int64_t budget) const {
  for (int64_t i = index.size(0); i < std::ssize(prompt_) && budget > 0; ++i, --budget) {
    if (index.is_full()) return 0;
    index.append(0, prompt_[i]);
  }
  return budget;
}

void PromptTexts::fill_next(int64_t budget) {
  budget = index_prompt(*next_, budget);
  for (std::list<Response>* responses : {&ended_, &running_}) {
    for (Response& each : *responses) {
      if (next_->is_full()) return;
      if (each.next_text == 0) each.next_text = next_->begin(prompt_);
      for (int64_t i = next_->size(each.next_text); i < index_->size(each.text); ++i, --budget) {
        if (budget == 0 || next_->is_full()) return;
        next_->append(each.next_text, index_->token(each.text, i));
      }
    }
  }
  if (next_->size(0) < std::ssize(prompt_)) return;
  index_ = std::move(next_);
  for (std::list<Response>* responses : {&ended_, &running_})
    for (Response& each : *responses) each.text = std::exchange(each.next_text, 0);
}

bool PromptTexts::is_full() const {
  return index_->is_full() || (next_ != nullptr && next_->is_full());
}

int64_t PromptTexts::num_bytes() const {
  int64_t bytes =
      static_cast<int64_t>(sizeof(*this) + salt_.size() + prompt_.size() * sizeof(TokenId)) +
      index_->num_bytes();
  if (next_ != nullptr) bytes += next_->num_bytes();
  const auto num_responses = static_cast<int64_t>(running_.size() + ended_.size());
  return bytes + num_responses * static_cast<int64_t>(sizeof(Response) + 2 * sizeof(void*));
}

}  // namespace slime::engine
