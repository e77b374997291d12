// Responses and labels are hostile: a model writes the one, the internet the other. Every reward
// has to end, without undefined behaviour, with a score or a failure.

#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "reward/answer_equality.h"
#include "reward/math_equality.h"
#include "reward/plain_latex.h"
#include "reward/reward.h"

using slime::Sample;

/// The first byte chooses, the rest is split at its first zero byte: response, label.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t zero = input.find('\0');
  const std::string response(input.substr(0, zero));
  const std::string label(zero == std::string_view::npos ? "22.5" : input.substr(zero + 1));

  constexpr const char* kTypes[] = {"math",   "deepscaler", "dapo",       "f1",      "gpqa",
                                    "random", "boxed_f1",   "boxed_gpqa", "ifbench", "dapo_box",
                                    "gsm8k",  "boxed_dapo", "boxed_math"};
  const size_t choice = data[0] % (std::size(kTypes) + 2);
  if (choice < std::size(kTypes)) {
    Sample sample;
    sample.response = response;
    sample.label = label;
    sample.metadata = {{"choices", {label, "London", "Paris"}},
                       {"instruction_id_list",
                        {"format:title_case", "format:emoji", "custom:csv_quotes",
                         "custom:reverse_newline", "custom:mcq_count_length", "format:quotes",
                         "sentence:alliteration_increment", "words:last_first"}}};
    const auto score = slime::reward::make_reward(kTypes[choice])(sample);
    if (score && score->is_number() &&
        !(score->to_number<double>() >= 0 && score->to_number<double>() <= 1))
      std::abort();
  } else if (choice > std::size(kTypes)) {
    // Whatever has a form at all equals itself.
    const bool has_form = !slime::reward::text_form(slime::reward::plain_latex(response)).empty();
    if (has_form != slime::reward::are_equal_answers(response, response)) std::abort();
    slime::reward::are_equal_answers(label, response);
    slime::reward::are_equal_answers(response, label);
  } else {
    // What equals itself as a string is correct.
    using slime::reward::Grading;
    if (!slime::reward::is_correct(response, response, Grading::kOriginal)) std::abort();
    slime::reward::is_correct(response, label, Grading::kStrict);
  }
  return 0;
}
