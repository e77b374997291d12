#include "reward/answer_parser.h"

#include <algorithm>

#include "reward/number_words.h"
#include "reward/python_text.h"

namespace slime::reward {

std::size_t AnswerParser::digits_at(std::size_t i) const {
  std::size_t end = i;
  while (end < text_.size() && is_digit(text_[end])) ++end;
  return end - i;
}

AnswerParser::Maybe AnswerParser::number() {
  skip();
  std::string digits;
  std::size_t count = digits_at(at_);
  digits += text_.substr(at_, count);
  at_ += count;
  bool is_whole = true;
  if (!keeps_commas_ && count > 0 && count <= 3) {
    while (at_ < text_.size() && text_[at_] == ',' && digits_at(at_ + 1) == 3) {
      digits += text_.substr(at_ + 1, 3);
      at_ += 4;
    }
    // "10 000" but not "3 125/1000"
    while (at_ + 4 <= text_.size() && text_[at_] == ' ' && digits_at(at_ + 1) == 3 &&
           !(at_ + 4 < text_.size() && text_[at_ + 4] == '/')) {
      digits += text_.substr(at_ + 1, 3);
      at_ += 4;
    }
  }
  if (at_ < text_.size() && text_[at_] == '.' && !(count == 0 && digits_at(at_ + 1) == 0)) {
    const std::size_t decimals = digits_at(at_ + 1);
    const bool is_sentence = decimals == 0 && at_ + 1 < text_.size() && is_letter(text_[at_ + 1]);
    if (!is_sentence) {
      is_whole = decimals == 0;
      digits += "." + text_.substr(at_ + 1, decimals);
      at_ += 1 + decimals;
      if (digits.front() == '.') digits.insert(digits.begin(), '0');
      if (digits.back() == '.') digits.pop_back();
      if (is_repeating()) return repeating(digits);
      if (command() == "ldots") {
        if (MaybeFormula endless = going_on(digits)) return answer_of(std::move(*endless));
      }
    }
  }
  if (digits.empty()) return std::nullopt;
  if (Maybe based = is_whole ? in_base(digits) : std::nullopt) return based;
  if (exponent_follows()) return scientific(std::move(digits));
  if (is_whole) {
    if (MaybeFormula mixed = mixed_number(digits)) return answer_of(std::move(*mixed));
    ordinal();
  }
  return answer_of(number_formula(std::move(digits)));
}

bool AnswerParser::is_repeating() {
  const std::string_view name = command();
  return name == "overline" || name == "bar" || name == "dot";
}

AnswerParser::Maybe AnswerParser::repeating(const std::string& before) {
  std::string period;
  const bool has_dots = command() == "dot";
  for (int i = 0; i < 2; ++i) {
    if (!is_repeating()) break;
    at_ += command().size() + 1;
    skip();
    const bool is_group = accept("{");
    const std::size_t count = is_group ? digits_at(at_) : std::min<std::size_t>(digits_at(at_), 1);
    if (count == 0) return std::nullopt;
    period += text_.substr(at_, count);
    at_ += count;
    if (is_group && !accept("}")) return std::nullopt;
    if (!has_dots) break;
    const std::size_t between = digits_at(at_);
    period += text_.substr(at_, between);
    at_ += between;
  }
  if (period.size() > 500) return std::nullopt;
  const std::size_t point = before.find('.');
  const std::size_t decimals = point == std::string::npos ? 0 : before.size() - point - 1;
  Formula tail =
      quotient_of(number_formula(period),
                  number_formula(std::string(period.size(), '9') + std::string(decimals, '0')));
  return answer_of(binary(FormulaKind::kSum, number_formula(before), std::move(tail)));
}

AnswerParser::MaybeFormula AnswerParser::going_on(const std::string& digits) {
  const std::size_t point = digits.find('.');
  const std::string decimals = point == std::string::npos ? "" : digits.substr(point + 1);
  for (std::size_t period = 1; 2 * period <= decimals.size(); ++period) {
    const std::string_view all = decimals;
    const std::string_view block = all.substr(all.size() - period);
    std::size_t count = 0;
    while ((count + 1) * period <= all.size() &&
           all.substr(all.size() - (count + 1) * period, period) == block) {
      ++count;
    }
    if (count < (period == 1 ? 3U : 2U)) continue;
    accept_command("ldots");
    const std::size_t kept = decimals.size() - period;
    return binary(
        FormulaKind::kSum,
        number_formula(digits.substr(0, point) + (kept > 0 ? "." + decimals.substr(0, kept) : "")),
        quotient_of(number_formula(std::string(block)),
                    number_formula(std::string(period, '9') + std::string(kept, '0'))));
  }
  return std::nullopt;
}

AnswerParser::Maybe AnswerParser::in_base(const std::string& digits) {
  if (at_ >= text_.size() || text_[at_] != '_') return std::nullopt;
  const std::size_t here = at_;
  ++at_;
  const std::optional<std::string> index = index_text();
  if (index) {
    Answer based;
    based.kind = AnswerKind::kBased;
    based.text = digits;
    const auto named = number_in_words(*index);
    if (!index->empty() && std::ranges::all_of(*index, is_digit)) {
      based.formula = number_formula(*index);
      return based;
    }
    if (named && named->second == index->size()) {
      based.formula = named->first;
      return based;
    }
  }
  at_ = here;
  return std::nullopt;
}

bool AnswerParser::exponent_follows() const {
  if (at_ >= text_.size() || (text_[at_] != 'e' && text_[at_] != 'E')) return false;
  std::size_t i = at_ + 1;
  if (i < text_.size() && (text_[i] == '-' || text_[i] == '+')) ++i;
  return digits_at(i) > 0 && digits_at(i) <= 4;
}

AnswerParser::Maybe AnswerParser::scientific(std::string digits) {
  ++at_;
  const bool is_negative = text_[at_] == '-';
  if (text_[at_] == '-' || text_[at_] == '+') ++at_;
  const std::size_t count = digits_at(at_);
  Formula exponent = number_formula(text_.substr(at_, count));
  at_ += count;
  if (is_negative) exponent = unary(FormulaKind::kNegative, std::move(exponent));
  return answer_of(binary(FormulaKind::kProduct, number_formula(std::move(digits)),
                          binary(FormulaKind::kPower, number_formula("10"), std::move(exponent))));
}

AnswerParser::MaybeFormula AnswerParser::mixed_number(const std::string& whole) {
  const std::size_t here = at_;
  const bool is_spaced = at_ < text_.size() && text_[at_] == ' ';
  std::string top, bottom;
  if (accept_command("frac")) {
    const auto part = [this]() -> std::string {
      const bool is_group = accept("{");
      skip();
      const std::size_t count =
          is_group ? digits_at(at_) : std::min<std::size_t>(digits_at(at_), 1);
      std::string digits = text_.substr(at_, count);
      at_ += count;
      if (is_group && !accept("}")) return "";
      return digits;
    };
    top = part();
    if (!top.empty()) bottom = part();
  } else if (is_spaced) {
    skip();
    const std::size_t count = digits_at(at_);
    top = text_.substr(at_, count);
    at_ += count;
    if (!top.empty() && accept("/")) {
      skip();
      const std::size_t below = digits_at(at_);
      bottom = text_.substr(at_, below);
      at_ += below;
    }
  }
  const bool is_proper =
      !top.empty() && !bottom.empty() &&
      (top.size() < bottom.size() || (top.size() == bottom.size() && top < bottom));
  if (!is_proper) {
    at_ = here;
    return std::nullopt;
  }
  return binary(FormulaKind::kSum, number_formula(whole),
                quotient_of(number_formula(top), number_formula(bottom)));
}

}  // namespace slime::reward
