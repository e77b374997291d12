#include "text/messages/mark_lexer.h"

#include <algorithm>

namespace slime::text {
namespace {

/// Texts are cut at the front when this much has been forgotten.
constexpr uint64_t kForgottenBytes = 4096;

}  // namespace

void MarkLexer::feed(std::string_view text) {
  text_ += text;
  lex();
}

void MarkLexer::feed(TokenId id, std::string_view text) {
  const MarkSet::Special* special = marks_->special(id);
  if (special == nullptr) return feed(text);
  // In front of the spelling stand bytes of earlier tokens that the detokenizer held back.
  if (text.ends_with(special->spelling)) text.remove_suffix(special->spelling.size());
  text_ += text;
  const uint64_t begin = fed();
  text_ += special->spelling;
  sampled_.push_back({begin, fed(), special->symbol});
  lex();
}

void MarkLexer::end() {
  is_ended_ = true;
  lex();
}

void MarkLexer::lex() {
  while (lexed_ < fed()) {
    const bool is_sampled = !sampled_.empty() && sampled_.front().begin == lexed_;
    if (!is_sampled && !marks_->may_begin(text_[lexed_ - base_])) {
      ++lexed_;
      continue;
    }
    Found found{lexed_, lexed_, nullptr, false};
    if (!match(lexed_, 0, found)) return;
    if (found.mark != nullptr) {
      found_.push_back(found);
      lexed_ = found.end;
    } else {
      lexed_ = is_sampled ? sampled_.front().end : lexed_ + 1;
    }
    while (!sampled_.empty() && sampled_.front().begin < lexed_) sampled_.pop_front();
  }
}

bool MarkLexer::match(uint64_t place, std::size_t sampled, Found& found) const {
  MarkSet::Node node = MarkSet::kRoot;
  bool has_sampled = false;
  while (place < fed()) {
    const bool is_sampled = sampled < sampled_.size() && sampled_[sampled].begin == place;
    node = marks_->next(node, is_sampled ? sampled_[sampled].symbol
                                         : static_cast<unsigned char>(text_[place - base_]));
    if (node == MarkSet::kNoNode) return true;
    place = is_sampled ? sampled_[sampled++].end : place + 1;
    has_sampled |= is_sampled;
    if (const Mark* mark = marks_->mark(node)) {
      found.end = place;
      found.mark = mark;
      found.is_sampled = has_sampled;
    }
    if (marks_->is_leaf(node)) return true;
  }
  return is_ended_;
}

std::optional<MarkLexer::Item> MarkLexer::peek() const {
  uint64_t end = lexed_;
  if (next_found_ < found_.size()) {
    const Found& found = found_[next_found_];
    if (found.begin == cursor_) return Item{found.begin, found.end, found.mark, found.is_sampled};
    end = found.begin;
  }
  if (cursor_ >= end) return std::nullopt;
  return Item{cursor_, end, nullptr, false};
}

void MarkLexer::move_to(uint64_t place) {
  cursor_ = place;
  while (next_found_ > 0 && found_[next_found_ - 1].begin >= place) --next_found_;
  while (next_found_ < found_.size() && found_[next_found_].begin < place) ++next_found_;
}

void MarkLexer::forget(uint64_t place) {
  place = std::min(place, cursor_);
  while (!found_.empty() && found_.front().end <= place && next_found_ > 0) {
    found_.pop_front();
    --next_found_;
  }
  if (place - base_ < kForgottenBytes || place - base_ < text_.size() / 2) return;
  text_.erase(0, place - base_);
  base_ = place;
}

}  // namespace slime::text
