/// The table of sampling parameters: every form of a parameter comes from it.

#include "engine/sampling_fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "engine/sampling_json.h"
#include "engine/sampling_params.h"

namespace slime::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void change(bool& value) { value = !value; }
void change(int64_t& value) { value = value == -1 ? 7 : value + 1; }
void change(double& value) { value = value == 0 ? 0.5 : value / 2; }
void change(std::string& value) { value = "a"; }
void change(std::vector<std::string>& value) { value = {"end", "stop"}; }
void change(std::vector<TokenId>& value) { value = {3, 1}; }
void change(std::vector<std::pair<TokenId, double>>& value) { value = {{2, -1.5}, {9, 4.0}}; }
void change(std::optional<uint64_t>& value) { value = 12; }

/// Every member has another value than at first, and all are in range.
SamplingParams all_changed() {
  SamplingParams params;
  each_sampling_field(params, [](const SamplingField&, auto& member) { change(member); });
  return params;
}

SamplingParams read(const json::object& object, SamplingNames names = SamplingNames::kSglang) {
  SamplingParams params;
  read_sampling_params(FieldReader(object, ""), names, 1000, params);
  return params;
}

/// Converts to anything, so that as many of them as a struct has members initialise it.
struct Anything {
  template <typename T>
  operator T() const;  // NOLINT: never defined
};

template <std::size_t... kIndex>
constexpr bool has_at_least(std::index_sequence<kIndex...>) {
  return requires { SamplingParams{(static_cast<void>(kIndex), Anything())...}; };
}

template <std::size_t kCount = 1>
constexpr std::size_t num_members() {
  if constexpr (has_at_least(std::make_index_sequence<kCount>()))
    return num_members<kCount + 1>();
  else
    return kCount - 1;
}

TEST(SamplingFields, EveryMemberOfSamplingParamsIsInTheTable) {
  EXPECT_EQ(sampling_names(SamplingNames::kSglang).size(), num_members());
}

TEST(SamplingFields, WhatUsersFunctionsGetReadsAsTheSameParameters) {
  const SamplingParams params = all_changed();
  const json::object object = to_json(params);
  EXPECT_EQ(object.size(), sampling_names(SamplingNames::kSglang).size());
  EXPECT_EQ(to_json(read(object)), object);
}

TEST(SamplingFields, UsersFunctionsAreNotToldDefaultsThatTheOriginalLeavesOut) {
  EXPECT_EQ(to_json(SamplingParams{}), parse_json(R"({"max_new_tokens": 128, "temperature": 1.0,
      "top_p": 1.0, "top_k": -1, "stop": null, "stop_token_ids": null,
      "skip_special_tokens": true, "spaces_between_special_tokens": true,
      "no_stop_trim": false})",
                                                  "")
                                           .as_object());
}

TEST(SamplingFields, OpenAisNamesAreThoseOfItsProtocol) {
  const json::object body{
      {"min_tokens", 2}, {"seed", -1}, {"max_tokens", 5}, {"min_new_tokens", 9}};
  const SamplingParams params = read(body, SamplingNames::kOpenAi);
  EXPECT_EQ(params.min_new_tokens, 2);
  EXPECT_EQ(params.sampling_seed, UINT64_MAX);
  EXPECT_EQ(params.max_new_tokens, 128) << "each route reads it by rules of its own";
}

TEST(SamplingFields, AProblemNamesTheFieldByTheProtocolsName) {
  SamplingParams params;
  params.max_new_tokens = 4;
  params.min_new_tokens = 5;
  params.top_k = 0;
  params.top_p = 0;
  EXPECT_THAT(
      problems_of(params, 10),
      ElementsAre("top_p must be in (0, 1], got 0", "top_k must be -1 or in [1, 1073741824], got 0",
                  "min_new_tokens must be at most max_new_tokens = 4, got 5"));
  EXPECT_THAT(problems_of(params, 10, SamplingNames::kOpenAi).back(),
              "min_tokens must be at most max_tokens = 4, got 5");
}

TEST(SamplingFields, AListThatWouldBeARuleWithoutEffectIsRefused) {
  for (const char* name : {"allowed_token_ids", "bad_words"}) {
    std::vector<std::string> problems;
    const json::object body{{name, json::array()}};
    SamplingParams params;
    read_sampling_params(FieldReader(body, "", problems), SamplingNames::kSglang, 10, params);
    EXPECT_THAT(problems, ElementsAre(fmt::format("{} must not be empty; leave it out", name)));
  }
  SamplingParams params;
  params.allowed_token_ids = {3, 10};
  EXPECT_THAT(problems_of(params, 10),
              ElementsAre("allowed_token_ids holds 10; the vocabulary has 10 ids"));
}

TEST(SamplingFields, EachRangeHoldsAtItsEndsAndNotBeyond) {
  SamplingParams params;
  each_sampling_field(params, [&](const SamplingField& field, auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, int64_t> || std::is_same_v<Member, double>) {
      const Member before = member;
      const auto refused = [&](double value) {
        member = static_cast<Member>(value);
        const auto problems = problems_of(params, 10);
        return !problems.empty() && problems.front().starts_with(field.name);
      };
      const double gap = std::is_same_v<Member, int64_t> ? 1 : 1e-3;
      EXPECT_EQ(refused(field.range.low), field.range.excludes_low) << field.name;
      EXPECT_FALSE(refused(field.range.high) && field.name != "min_new_tokens") << field.name;
      EXPECT_TRUE(refused(field.range.high + gap)) << field.name;
      EXPECT_EQ(refused(field.range.low - gap), field.range.or_value != field.range.low - gap)
          << field.name;
      member = before;
    }
  });
}

TEST(SamplingFields, PythonHasTheSameNames) {
  std::string expected;
  const SamplingParams params;
  each_sampling_field(params, [&](const SamplingField& field, const auto&) {
    expected +=
        fmt::format("    \"{}\": \"{}\",\n", field.name, name_of(field, SamplingNames::kOpenAi));
  });
  std::ostringstream file;
  file << std::ifstream(SLIME_SOURCE_DIR "/python/slime/rollout/sampling_params.py").rdbuf();
  EXPECT_THAT(file.str(), HasSubstr("\nNAMES = {\n" + expected + "}\n"));
}

}  // namespace
}  // namespace slime::engine
