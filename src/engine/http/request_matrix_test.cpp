/// Every field of a request with every kind of value: the answer is right, or a 400 that names the
/// field. The cases are made of the tables, so a new row is tested without a new test.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/http/request_fields_table.h"
#include "engine/http/test_server.h"
#include "engine/sampling_json.h"

namespace slime::engine {
namespace {

/// Values of all types and sizes, as JSON.
std::vector<std::string> any_values() {
  const std::string long_text(5000, 'x');
  std::vector<std::string> values = {"null",
                                     "true",
                                     "false",
                                     "0",
                                     "1",
                                     "-1",
                                     "-2",
                                     "2",
                                     "3.0",
                                     "0.5",
                                     "-0.5",
                                     "1e308",
                                     "-1e308",
                                     "1e-320",
                                     "2147483648",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "-9223372036854775808",
                                     "100000000000000000000000000000",
                                     R"("")",
                                     R"("a")",
                                     R"("true")",
                                     R"("1")",
                                     "\"" + long_text + "\"",
                                     "[]",
                                     "[null]",
                                     "[true]",
                                     "[1]",
                                     "[-1]",
                                     R"(["a"])",
                                     R"([""])",
                                     "[[]]",
                                     "[[1]]",
                                     "[{}]",
                                     "[true,false]",
                                     "[1,2]",
                                     R"(["a","b"])",
                                     "[{},{}]",
                                     "[[65],[66]]",
                                     "[null,null]",
                                     "[1,\"a\"]",
                                     "[1,2,3]",
                                     "[true,true,true]",
                                     R"(["a","b","c"])",
                                     "[{},{},{}]",
                                     "{}",
                                     R"({"a":1})",
                                     R"({"1":2})",
                                     R"({"1":1e308})",
                                     R"({"1":"a"})",
                                     R"({"5000":1})",
                                     R"({"type":"text"})"};
  std::string many = "1";
  for (int i = 0; i < 5000; ++i) many += ",1";
  values.push_back("[" + many + "]");
  return values;
}

std::vector<std::string> values_for(const RequestField& field) {
  std::vector<std::string> values = any_values();
  using Limits = std::numeric_limits<std::int64_t>;
  const auto add = [&](std::int64_t bound, int outwards) {
    if (bound == Limits::min() || bound == Limits::max()) return;
    for (const std::int64_t value : {bound - outwards, bound, bound + outwards}) {
      if (field.type == FieldType::kInteger) values.push_back(std::to_string(value));
      if (field.type == FieldType::kText)
        values.push_back("\"" + std::string(static_cast<std::size_t>(value), 'y') + "\"");
    }
  };
  add(field.low, -1);
  add(field.high, 1);
  return values;
}

std::vector<std::string> values_for(const SamplingField& field) {
  std::vector<std::string> values = any_values();
  for (const double bound : {field.range.low, field.range.high}) {
    if (!std::isfinite(bound)) continue;
    for (const double value :
         {std::nextafter(bound, -1e300), bound, std::nextafter(bound, 1e300), bound - 1, bound + 1})
      values.push_back(json_text(json::value(value)));
  }
  return values;
}

bool is_right_alone(const RequestField& field, const json::value& value) {
  if (value.is_null()) return true;
  switch (field.type) {
    case FieldType::kBoolean:
      return value.is_bool();
    case FieldType::kInteger: {
      const auto number = whole_number(value);
      return number && *number >= field.low && *number <= field.high;
    }
    case FieldType::kText:
      return value.is_string() && std::ssize(value.get_string()) <= field.high;
    case FieldType::kObject:
      return value.is_object();
    default:
      return false;
  }
}

enum class Verdict { kRight, kWrong, kEither };

/// By the table alone.
Verdict expected(const RequestField& field, const json::value& value, std::size_t num_in_list) {
  if (field.use == FieldUse::kIgnored) return Verdict::kRight;
  if (field.use == FieldUse::kRefused) {
    std::vector<std::string> problems;
    const json::object body{{field.name, value}};
    FieldReader(body, "", problems).refuse(field.name, "x");
    return problems.empty() ? Verdict::kRight : Verdict::kWrong;
  }
  const bool has_rules = field.type == FieldType::kAny || field.type == FieldType::kTokenIds ||
                         field.type == FieldType::kObject;
  const bool is_list = field.is_per_prompt && value.is_array();
  if (has_rules && !is_list && !value.is_null()) return Verdict::kEither;
  if (!is_list) return is_right_alone(field, value) ? Verdict::kRight : Verdict::kWrong;
  const json::array& list = value.get_array();
  if (field.type == FieldType::kTokenIds) return Verdict::kEither;
  const bool is_right = num_in_list > 0 && list.size() == num_in_list &&
                        std::ranges::all_of(list, [&](const json::value& element) {
                          return is_right_alone(field, element);
                        });
  return is_right ? (has_rules ? Verdict::kEither : Verdict::kRight) : Verdict::kWrong;
}

class Matrix {
 public:
  void send(const char* path, const std::string& body, std::string_view name, Verdict verdict) {
    const net::HttpResponse response = server_.call("POST", path, body);
    ++num_sent_;
    const std::string shown = fmt::format("{} {}", path, body.substr(0, 200));
    // A name of an adapter, of which this server has none.
    const bool is_absent = response.status == 404 && name == "lora_path";
    EXPECT_TRUE(response.status == 200 || response.status == 400 || is_absent)
        << response.status << " " << shown << " " << response.body;
    if (verdict == Verdict::kRight && !is_absent) {
      EXPECT_EQ(response.status, 200) << shown << response.body;
    }
    if (verdict == Verdict::kWrong) {
      EXPECT_EQ(response.status, 400) << shown;
    }
    const bool is_too_long =
        response.body.find("maximum context length") != std::string::npos;  // no field's fault
    if (response.status == 400 && !is_too_long) {
      EXPECT_NE(response.body.find(name), std::string::npos) << shown << " -> " << response.body;
    }
  }
  std::size_t num_sent() const { return num_sent_; }

 private:
  TestServer server_{"Hi"};
  std::size_t num_sent_ = 0;
};

TEST(RequestMatrix, EveryFieldOfGenerateTakesEveryValueOrNamesItself) {
  Matrix matrix;
  for (const RequestField& field : request_fields()) {
    if ((field.protocols & kGenerate) == 0) continue;
    const bool is_prompt = field.name == "text" || field.name == "input_ids";
    for (const std::string& value : values_for(field)) {
      const json::value parsed = parse_json(value, "value");
      const std::string member = fmt::format(R"("{}":{})", field.name, value);
      if (is_prompt) {
        matrix.send("/generate", "{" + member + "}", field.name, Verdict::kEither);
        continue;
      }
      matrix.send("/generate", R"({"input_ids":[65],)" + member + "}", field.name,
                  expected(field, parsed, 0));
      matrix.send("/generate", R"({"text":["x","y"],)" + member + "}", field.name,
                  expected(field, parsed, 2));
    }
  }
  EXPECT_GT(matrix.num_sent(), 4000U);
}

TEST(RequestMatrix, EveryMemberOfSamplingParamsTakesEveryValueOrNamesItself) {
  Matrix matrix;
  const auto send = [&](std::string_view name, const std::string& value, Verdict verdict) {
    const std::string params = name == "max_new_tokens"
                                   ? fmt::format(R"({{"{}":{}}})", name, value)
                                   : fmt::format(R"({{"max_new_tokens":2,"{}":{}}})", name, value);
    matrix.send("/generate", R"({"text":"x","sampling_params":)" + params + "}", name, verdict);
    matrix.send("/generate",
                R"({"text":["x","y"],"sampling_params":[{"max_new_tokens":1},)" + params + "]}",
                name, name == "n" ? Verdict::kEither : verdict);
  };
  for (const RequestField& field : request_fields()) {
    if ((field.protocols & kSampling) == 0) continue;
    for (const std::string& value : values_for(field))
      send(field.name, value, expected(field, parse_json(value, "value"), 0));
  }
  const SamplingParams params;
  each_sampling_field(params, [&](const SamplingField& field, const auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    for (const std::string& text : values_for(field)) {
      const json::value value = parse_json(text, "value");
      Verdict verdict = Verdict::kEither;
      if constexpr (std::is_same_v<Member, bool>)
        verdict = value.is_bool() || value.is_null() ? Verdict::kRight : Verdict::kWrong;
      if constexpr (std::is_same_v<Member, double>) {
        const double number = value.is_number() ? value.to_number<double>() : 0;
        const bool is_within = number >= field.range.low && number <= field.range.high &&
                               !(field.range.excludes_low && number == field.range.low);
        verdict =
            value.is_null() || (value.is_number() && is_within) ? Verdict::kRight : Verdict::kWrong;
      }
      if constexpr (std::is_same_v<Member, std::int64_t>) {
        const auto number = whole_number(value);
        const double real = number ? static_cast<double>(*number) : 0;
        const bool is_within = (real >= field.range.low && real <= field.range.high) ||
                               (number && field.range.or_value == real);
        if (!value.is_null() && !(number && is_within)) verdict = Verdict::kWrong;
      }
      send(field.name, text, verdict);
    }
  });
  EXPECT_GT(matrix.num_sent(), 2000U);
}

TEST(RequestMatrix, EveryFieldOfTheOpenAiRoutesTakesEveryValueOrNamesItself) {
  Matrix matrix;
  const auto send = [&](Protocols protocol, std::string_view name, const std::string& value) {
    const bool is_chat = protocol == kChatCompletions;
    const std::string_view prompt = is_chat ? "messages" : "prompt";
    const std::string prompts = is_chat ? R"([{"role":"user","content":"x"}])" : R"("x")";
    std::string body = "{";
    if (name != prompt) body += fmt::format(R"("{}":{},)", prompt, prompts);
    if (name != "max_tokens") body += R"("max_tokens":2,)";
    body += fmt::format(R"("{}":{}}})", name, value);
    matrix.send(is_chat ? "/v1/chat/completions" : "/v1/completions", body, name, Verdict::kEither);
  };
  for (const Protocols protocol : {kChatCompletions, kCompletions}) {
    for (const RequestField& field : request_fields()) {
      if ((field.protocols & protocol) == 0) continue;
      for (const std::string& value : values_for(field)) send(protocol, field.name, value);
    }
    const SamplingParams params;
    each_sampling_field(params, [&](const SamplingField& field, const auto&) {
      for (const std::string& value : values_for(field))
        send(protocol, name_of(field, SamplingNames::kOpenAi), value);
    });
  }
  EXPECT_GT(matrix.num_sent(), 5000U);
}

TEST(RequestMatrix, EveryFieldOfResponsesAndMessagesTakesEveryValueOrNamesItself) {
  Matrix matrix;
  const auto send = [&](Protocols protocol, std::string_view name, const std::string& value) {
    const bool is_messages = protocol == kMessages;
    const std::string_view prompt = is_messages ? "messages" : "input";
    const std::string_view limit = is_messages ? "max_tokens" : "max_output_tokens";
    std::string body = "{";
    if (name != prompt) body += fmt::format(R"("{}":[{{"role":"user","content":"x"}}],)", prompt);
    if (name != limit) body += fmt::format(R"("{}":2,)", limit);
    body += fmt::format(R"("{}":{}}})", name, value);
    matrix.send(is_messages ? "/v1/messages" : "/v1/responses", body, name, Verdict::kEither);
  };
  for (const Protocols protocol : {kResponses, kMessages}) {
    for (const RequestField& field : request_fields()) {
      if ((field.protocols & protocol) == 0) continue;
      if (field.name == "previous_response_id") continue;  // 404, as OpenAI's clients expect
      for (const std::string& value : values_for(field)) send(protocol, field.name, value);
    }
    const SamplingParams params;
    each_sampling_field(params, [&](const SamplingField& field, const auto&) {
      for (const std::string& value : values_for(field))
        send(protocol, name_of(field, SamplingNames::kOpenAi), value);
    });
  }
  EXPECT_GT(matrix.num_sent(), 5000U);
}

TEST(RequestMatrix, EveryFieldOfTheTokenRouteTakesEveryValueOrNamesItself) {
  Matrix matrix;
  const auto send_sampling = [&](std::string_view name, const std::string& value) {
    matrix.send("/inference/v1/generate",
                fmt::format(R"({{"token_ids":[65],"sampling_params":{{"{}":{}}}}})", name, value),
                name, Verdict::kEither);
  };
  for (const RequestField& field : request_fields()) {
    for (const std::string& value : values_for(field)) {
      if ((field.protocols & kTokenSampling) != 0) send_sampling(field.name, value);
      if ((field.protocols & kTokenRoute) == 0) continue;
      const std::string ids = field.name == "token_ids" ? "" : R"("token_ids":[65],)";
      matrix.send("/inference/v1/generate", fmt::format(R"({{{}"{}":{}}})", ids, field.name, value),
                  field.name, Verdict::kEither);
    }
  }
  const SamplingParams params;
  each_sampling_field(params, [&](const SamplingField& field, const auto&) {
    for (const std::string& value : values_for(field))
      send_sampling(name_of(field, SamplingNames::kOpenAi), value);
  });
  EXPECT_GT(matrix.num_sent(), 2000U);
}

TEST(RequestMatrix, EveryFieldOfTheTextRoutesTakesEveryValueOrNamesItself) {
  Matrix matrix;
  for (const RequestField& field : request_fields()) {
    for (const std::string& value : values_for(field)) {
      const std::string member = fmt::format(R"("{}":{})", field.name, value);
      const auto send = [&](const char* path, std::string_view prompt, const char* given) {
        const std::string own =
            field.name == prompt ? "" : fmt::format(R"("{}":{},)", prompt, given);
        matrix.send(path, "{" + own + member + "}", field.name, Verdict::kEither);
      };
      if ((field.protocols & kTokenize) != 0) {
        send("/tokenize", "prompt", R"("x")");
        send("/tokenize", "messages", R"([{"role":"user","content":"x"}])");
      }
      if ((field.protocols & kDetokenize) != 0) send("/detokenize", "tokens", "[65]");
    }
  }
  EXPECT_GT(matrix.num_sent(), 1000U);
}

}  // namespace
}  // namespace slime::engine
