#include "reward/answer_parser.h"

#include <algorithm>

#include "reward/python_text.h"

namespace slime::reward {

bool AnswerParser::at_end() {
  skip();
  return at_ >= text_.size();
}

char AnswerParser::next() {
  skip();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool AnswerParser::at(std::string_view what) {
  skip();
  return std::string_view(text_).substr(at_).starts_with(what);
}

bool AnswerParser::accept(std::string_view what) {
  if (!at(what)) return false;
  at_ += what.size();
  return true;
}

std::string_view AnswerParser::word() {
  skip();
  std::size_t end = at_;
  while (end < text_.size() && is_letter(text_[end])) ++end;
  return std::string_view(text_).substr(at_, end - at_);
}

std::string_view AnswerParser::command() {
  if (next() != '\\') return {};
  std::size_t end = at_ + 1;
  while (end < text_.size() && is_letter(text_[end])) ++end;
  return std::string_view(text_).substr(at_ + 1, end - at_ - 1);
}

bool AnswerParser::accept_command(std::string_view name) {
  if (command() != name) return false;
  at_ += name.size() + 1;
  return true;
}

bool AnswerParser::accept_word(std::string_view name) {
  if (to_lower(word()) != name) return false;
  at_ += name.size();
  return true;
}

std::string AnswerParser::separator() {
  std::string found;
  while (true) {
    if (accept(",")) {
      if (found.empty()) found = ",";
    } else if (accept(";")) {
      if (found.empty()) found = ",";
    } else if (accept("\\\\")) {
      if (found.empty()) found = ",";
    } else if (accept_word("and") || accept_command("land") || accept_command("wedge") ||
               accept("&")) {
      found = "and";
    } else if (accept_word("or") || accept_command("lor") || accept_command("vee")) {
      found = "or";
    } else {
      return found;
    }
  }
}

AnswerParser::Maybe AnswerParser::list(std::string_view close) {
  return deeper([&]() -> Maybe {
    Answer all;
    all.kind = AnswerKind::kList;
    while (true) {
      if (at_end() || (!close.empty() && closes(close))) break;
      Maybe part = item();
      if (!part || all.parts.size() == kMostAnswerParts) return std::nullopt;
      all.parts.push_back(std::move(*part));
      std::string between = separator();
      if (between.empty()) break;
      all.signs.push_back(std::move(between));
    }
    if (all.parts.empty()) return all;
    all.signs.resize(all.parts.size() - 1);
    if (all.parts.size() == 1) return std::move(all.parts[0]);
    return all;
  });
}

bool AnswerParser::closes(std::string_view close) {
  return std::ranges::any_of(close, [this](char c) {
    if (c == '}') return at("}") || at("\\}");
    if (c == '\\') return command() == "rangle" || command() == "end";
    return at(std::string_view(&c, 1));
  });
}

std::string AnswerParser::relation_sign() {
  for (const std::string_view sign : {"=", "<", ">"}) {
    if (accept(sign)) return std::string(sign);
  }
  for (const std::string_view name : {"le", "ge", "ne", "in", "approx", "equiv", "cong"}) {
    if (accept_command(name)) return name == "approx" ? "=" : "\\" + std::string(name);
  }
  return {};
}

void AnswerParser::skip_lead() {
  const std::size_t begin = at_;
  std::size_t i = at_;
  int num_words = 0;
  bool has_long_word = false;
  while (i < text_.size()) {
    while (i < text_.size() && text_[i] == ' ') ++i;
    std::size_t end = i;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    if (end == i) break;
    const std::string lower = to_lower(std::string_view(text_).substr(i, end - i));
    for (const char* bad :
         {"not", "more", "less", "most", "least", "between", "no", "and", "or", "than", "except",
          "without", "sqrt", "sin", "cos", "tan", "ln", "log", "never"}) {
      if (lower == bad) return;
    }
    has_long_word = has_long_word || lower.size() > 3;
    ++num_words;
    i = end;
    const bool ends_lead = (lower == "is" || lower == "are" || lower == "approximately" ||
                            lower == "about" || lower == "equals") &&
                           i < text_.size();
    if (ends_lead) {
      at_ = i;
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == ':')) ++at_;
      return skip_lead();
    }
  }
  if (num_words == 0 || !has_long_word || i >= text_.size()) return;
  if (text_[i] != ':' && text_[i] != '=') return;
  at_ = i + 1;
  if (at_end()) at_ = begin;
}

AnswerParser::Maybe AnswerParser::item() {
  skip();
  while (accept_command("approx") || accept_command("implies") || accept_command("Rightarrow")) {
  }
  skip_lead();
  return relation();
}

AnswerParser::Maybe AnswerParser::relation() {
  Maybe first = ratio();
  if (!first) return std::nullopt;
  std::string sign = relation_sign();
  if (sign.empty()) return first;
  Answer chain;
  chain.kind = AnswerKind::kRelation;
  chain.parts.push_back(std::move(*first));
  while (!sign.empty()) {
    Maybe side = ratio();
    if (!side || chain.parts.size() > 20) return std::nullopt;
    chain.signs.push_back(sign);
    chain.parts.push_back(std::move(*side));
    sign = relation_sign();
  }
  return chain;
}

AnswerParser::Maybe AnswerParser::ratio() {
  Maybe first = sets();
  if (!first || in_builder_ || !(at(":") || half_of_day() || to_lower(word()) == "to")) {
    return first;
  }
  Answer all;
  all.kind = AnswerKind::kRatio;
  all.parts.push_back(std::move(*first));
  while (accept(":") || accept_word("to")) {
    Maybe side = sets();
    if (!side || all.parts.size() == kMostAnswerParts) return std::nullopt;
    all.parts.push_back(std::move(*side));
  }
  // "11:45 a.m."
  while (!at_end() && (is_letter(next()) || next() == '.')) {
    const std::string lower = to_lower(word());
    if (lower == "and" || lower == "or") break;
    if (lower.empty()) {
      ++at_;
      continue;
    }
    at_ += lower.size();
    all.text += lower;
  }
  return all;
}

AnswerParser::Maybe AnswerParser::sets() {
  Maybe left = quantity();
  while (left) {
    std::string sign;
    for (const char* name : {"cup", "cap", "setminus"}) {
      if (accept_command(name)) sign = std::string("\\") + name;
    }
    const bool is_set = left->kind == AnswerKind::kNumbers || left->kind == AnswerKind::kSet ||
                        left->kind == AnswerKind::kTuple || left->kind == AnswerKind::kOperation;
    if (sign.empty() && is_set && accept("-")) sign = "\\setminus";
    if (sign.empty()) return left;
    Maybe right = quantity();
    if (!right) return std::nullopt;
    Answer both;
    both.kind = AnswerKind::kOperation;
    both.text = sign;
    both.parts.push_back(std::move(*left));
    both.parts.push_back(std::move(*right));
    if (++num_operations_ > 100) return std::nullopt;
    left = std::move(both);
  }
  return left;
}

}  // namespace slime::reward
