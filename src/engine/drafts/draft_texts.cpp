#include "engine/drafts/draft_texts.h"

#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>

#include "core/xxhash64.h"

namespace slime::engine {
namespace {

uint64_t hash_of_prompt(std::span<const TokenId> prompt, std::string_view salt) {
  const auto bytes = std::as_bytes(prompt);
  return xxhash64({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, xxhash64(salt));
}

}  // namespace

struct DraftTexts::Store {
  using Prompts = std::list<PromptTexts>;

  int64_t limit_bytes = 0;
  int64_t num_bytes = 0;  // of all prompts
  Prompts running;        // with running responses
  Prompts idle;           // without, least recently used first
  std::unordered_multimap<uint64_t, Prompts::iterator> by_hash;

  /// Moved to `running`.
  Prompts::iterator find_or_add(std::span<const TokenId> prompt, std::string_view salt);
  /// One of its responses ended: moved to `idle` if it was the last that ran.
  void settle(Prompts::iterator prompt);
  void drop_idle();
  std::unordered_multimap<uint64_t, Prompts::iterator>::iterator entry_of(
      std::span<const TokenId> prompt, std::string_view salt);

  /// Counts what `change` does to the bytes of a prompt.
  template <typename Change>
  void counted(PromptTexts& prompt, const Change& change) {
    num_bytes -= prompt.num_bytes();
    change();
    num_bytes += prompt.num_bytes();
  }
};

std::unordered_multimap<uint64_t, DraftTexts::Store::Prompts::iterator>::iterator
DraftTexts::Store::entry_of(std::span<const TokenId> prompt, std::string_view salt) {
  const auto [begin, end] = by_hash.equal_range(hash_of_prompt(prompt, salt));
  const auto found = std::find_if(begin, end, [&](const auto& entry) {
    return entry.second->salt() == salt && std::ranges::equal(entry.second->prompt(), prompt);
  });
  return found == end ? by_hash.end() : found;
}

DraftTexts::Store::Prompts::iterator DraftTexts::Store::find_or_add(std::span<const TokenId> prompt,
                                                                    std::string_view salt) {
  if (const auto entry = entry_of(prompt, salt); entry != by_hash.end()) {
    if (!entry->second->is_running()) running.splice(running.end(), idle, entry->second);
    return entry->second;
  }
  running.emplace_back(prompt, salt);
  const auto added = std::prev(running.end());
  by_hash.emplace(hash_of_prompt(prompt, salt), added);
  num_bytes += added->num_bytes();
  return added;
}

void DraftTexts::Store::settle(Prompts::iterator prompt) {
  const bool is_running = prompt->is_running();
  if (!is_running) idle.splice(idle.end(), running, prompt);
  drop_idle();
  // A prompt that always has a running response is never dropped, and where texts do not grow, its new index is never
  // complete.
  if (is_running && num_bytes > limit_bytes && prompt->num_ended() > PromptTexts::kMostEnded)
    counted(*prompt, [&] { prompt->forget_ended(); });
}

void DraftTexts::Store::drop_idle() {
  while (num_bytes > limit_bytes && !idle.empty()) {
    num_bytes -= idle.front().num_bytes();
    by_hash.erase(entry_of(idle.front().prompt(), idle.front().salt()));
    idle.pop_front();
  }
}

DraftTexts::Text::Text(std::shared_ptr<Store> store, std::list<PromptTexts>::iterator prompt)
    : store_(std::move(store)), prompt_(prompt) {
  store_->counted(*prompt_, [&] { response_ = prompt_->begin(); });
  follow({});
}

DraftTexts::Text::~Text() {
  store_->counted(*prompt_, [&] { prompt_->end(response_); });
  store_->settle(prompt_);
}

void DraftTexts::Text::follow(std::span<const TokenId> response) {
  const auto from_response = std::min<int64_t>(SuffixIndex::kContext, std::ssize(response));
  const auto from_prompt =
      std::min<int64_t>(SuffixIndex::kContext - from_response, std::ssize(prompt_->prompt()));
  num_context_ = from_prompt + from_response;
  const auto begin = context_.end() - num_context_;
  std::ranges::copy(prompt_->prompt().last(from_prompt), begin);
  std::ranges::copy(response.last(from_response), begin + from_prompt);
  store_->drop_idle();
  if (store_->num_bytes > store_->limit_bytes || prompt_->is_full()) return;
  store_->counted(*prompt_, [&] { prompt_->follow(response_, response); });
}

void DraftTexts::Text::propose(int64_t most, std::vector<Draft>& out) const {
  prompt_->index().propose(std::span(context_).last(num_context_), most, out);
}

DraftTexts::DraftTexts(int64_t limit_bytes) : store_(std::make_shared<Store>()) {
  store_->limit_bytes = limit_bytes;
}

std::shared_ptr<DraftTexts::Text> DraftTexts::begin(std::span<const TokenId> prompt,
                                                    std::string_view salt) {
  return std::make_shared<Text>(store_, store_->find_or_add(prompt, salt));
}

int64_t DraftTexts::num_bytes() const { return store_->num_bytes; }

int64_t DraftTexts::num_prompts() const { return static_cast<int64_t>(store_->by_hash.size()); }

}  // namespace slime::engine
