// Golden cases of a sample that grows segment by segment: the reference, and what the program does
// of it.

#include "core/error.h"
#include "core/version_runs.h"
#include "golden.h"
#include "rollout/sample_growth.h"
#include "sample_append.h"

namespace slime::golden {
namespace {

/// Little-endian int32 in base64.
std::vector<int32_t> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char letter : text) {
    if (letter == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(letter));
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xFF);
    }
  }
  std::vector<int32_t> numbers(bytes.size() / 4);
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * 4);
  return numbers;
}

template <typename T>
std::vector<T> numbers_of(const json::object& object, const char* key) {
  if (!has(object, key)) return {};
  const auto wide = doubles(object.at(key));
  return {wide.begin(), wide.end()};
}

/// The files give the final tokens: what the steps append is cut off here.
Sample initial_sample(const json::object& inputs) {
  const auto& initial = part(inputs, "initial");
  Sample sample;
  std::size_t appended = 0;
  for (const auto& step : inputs.at("steps").as_array())
    appended += step.at("tokens").as_array().size();
  sample.tokens = numbers_of<TokenId>(initial, "tokens");
  sample.tokens.resize(sample.tokens.size() - std::min(appended, sample.tokens.size()));
  const auto response =
      has(initial, "response_length") ? integer(initial, "response_length") : int64_t{0};
  sample.prompt_length = static_cast<int64_t>(sample.tokens.size()) - response;
  sample.loss_mask = numbers_of<uint8_t>(initial, "loss_mask");
  sample.log_probs = numbers_of<float>(initial, "rollout_log_probs");
  if (!sample.loss_mask.empty()) sample.loss_mask.resize(response);
  if (!sample.log_probs.empty()) sample.log_probs.resize(response);
  sample.top_p_ids = numbers_of<TokenId>(initial, "rollout_top_p_token_ids");
  sample.top_p_offsets = numbers_of<int64_t>(initial, "rollout_top_p_token_offsets");
  return sample;
}

std::optional<Status> status_of(const json::object& meta) {
  if (!has(meta, "finish_reason")) return std::nullopt;
  const std::string type = word(part(meta, "finish_reason"), "type");
  if (type == "stop") return Status::kCompleted;
  if (type == "length") return Status::kTruncated;
  if (type == "abort") return Status::kAborted;
  return std::nullopt;
}

Segment segment_of(const json::object& step) {
  Segment segment;
  segment.tokens = numbers_of<TokenId>(step, "tokens");
  if (has(step, "log_probs")) segment.log_probs = numbers_of<float>(step, "log_probs");
  segment.is_trained = flag(step, "trainable");
  if (has(step, "text")) segment.text = word(step, "text");
  if (!has(step, "meta_info")) return segment;
  const auto& meta = part(step, "meta_info");
  segment.status = status_of(meta);
  if (has(meta, "weight_version")) {
    segment.versions = {
        {std::stoll(word(meta, "weight_version")), static_cast<int64_t>(segment.tokens.size())}};
  }
  if (has(meta, "cached_tokens")) segment.cached_tokens = integer(meta, "cached_tokens");
  if (has(meta, "prompt_tokens")) segment.prompt_tokens = integer(meta, "prompt_tokens");
  if (has(meta, "top_p_token_ids")) {
    KeptIds kept{decode_base64(word(meta, "top_p_token_ids")), {}};
    if (has(meta, "top_p_token_offsets")) {
      const auto offsets = decode_base64(word(meta, "top_p_token_offsets"));
      kept.offsets.assign(offsets.begin(), offsets.end());
    }
    segment.kept_ids = std::move(kept);
  }
  if (has(meta, "routed_experts")) {
    segment.routed_experts = RoutedExperts{decode_base64(word(meta, "routed_experts")), 0};
    if (has(meta, "routed_experts_start_len"))
      segment.routed_experts->first_row = integer(meta, "routed_experts_start_len");
  }
  return segment;
}

void expect_state(const Sample& sample, const json::object& expected) {
  EXPECT_EQ(sample.tokens, numbers_of<TokenId>(expected, "tokens"));
  EXPECT_EQ(sample.response, word(expected, "response"));
  EXPECT_EQ(sample.response_length(), integer(expected, "response_length"));
  // An empty mask is one of all ones.
  const std::vector<uint8_t> mask =
      sample.loss_mask.empty()
          ? std::vector<uint8_t>(static_cast<std::size_t>(sample.response_length()), 1)
          : sample.loss_mask;
  EXPECT_EQ(mask, numbers_of<uint8_t>(expected, "loss_mask"));
  EXPECT_EQ(sample.log_probs, numbers_of<float>(expected, "rollout_log_probs"));
  EXPECT_EQ(sample.top_p_ids, numbers_of<TokenId>(expected, "top_p_token_ids"));
  EXPECT_EQ(sample.top_p_offsets, numbers_of<int64_t>(expected, "top_p_token_offsets"));
  EXPECT_EQ(sample.routed_experts, numbers_of<int16_t>(expected, "routed_experts"));
  EXPECT_EQ(std::string(to_string(sample.status)), word(expected, "status"));
  json::array versions;  // of the engine's calls: the original does not count a tool's tokens
  for (const VersionRun& run : sample.versions) {
    if (run.version != kNoVersion) versions.emplace_back(std::to_string(run.version));
  }
  EXPECT_EQ(versions, expected.at("weight_versions").as_array());
  EXPECT_EQ(sample.cached_tokens, integer(expected, "cached_tokens"));
  EXPECT_EQ(sample.engine_prompt_tokens, integer(expected, "total_prompt_tokens"));
}

/// What an engine that draws this segment would say. Nothing: no engine call ends so.
std::optional<engine::GenerateUpdate> update_of(const Segment& segment) {
  using Kind = engine::FinishReason::Kind;
  if (!segment.is_trained || segment.routed_experts || !segment.status) return std::nullopt;
  engine::GenerateUpdate update;
  update.output_ids = segment.tokens;
  update.output_log_probs = segment.log_probs.value_or(std::vector<float>{});
  update.versions = segment.versions;
  update.prompt_tokens = segment.prompt_tokens;
  update.cached_tokens = segment.cached_tokens;
  if (segment.kept_ids) {
    update.top_p_ids = segment.kept_ids->ids;
    for (std::size_t i = 1; i < segment.kept_ids->offsets.size(); ++i) {
      update.top_p_counts.push_back(segment.kept_ids->offsets[i] -
                                    segment.kept_ids->offsets[i - 1]);
    }
  }
  update.finish =
      engine::FinishReason{.kind = *segment.status == Status::kCompleted   ? Kind::kStop
                                   : *segment.status == Status::kTruncated ? Kind::kLength
                                                                           : Kind::kAbort};
  return update;
}

GOLDEN_TEST(SampleAppend, "sample_append.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  const RoutingShape routing{integer(params, "num_layers"), integer(params, "moe_router_topk")};
  Sample sample = initial_sample(inputs), sampled = sample;
  bool is_sampled = true;  // every step so far could be an engine's
  const auto& steps = inputs.at("steps").as_array();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Segment segment = segment_of(steps[i].as_object());
    const auto update = update_of(segment);
    is_sampled &= update.has_value();
    const auto appended = append_segment(sample, segment, routing);
    if (has(expected, "error")) {
      EXPECT_FALSE(appended);
      if (is_sampled) {
        EXPECT_THROW(rollout::append_generated(sampled, *update), BugError);
      }
      return;
    }
    ASSERT_TRUE(appended) << appended.error().message;
    const json::object& state = expected.at("after_each_step").at(i).as_object();
    expect_state(sample, state);
    if (!is_sampled) continue;
    rollout::append_generated(sampled, *update);
    sampled.response += segment.text;
    expect_state(sampled, state);
  }
}

}  // namespace
}  // namespace slime::golden
