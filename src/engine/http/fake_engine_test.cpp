#include "engine/http/fake_engine.h"

#include "core/json.h"

namespace slime::engine {

std::unique_ptr<text::Tokenizer> make_ascii_tokenizer() {
  json::object vocab;
  for (int code = 33; code < 127; ++code) vocab[std::string(1, static_cast<char>(code))] = code;
  vocab["\xc4\xa0"] = 32;  // how byte-level BPE spells a space
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  const json::value tokenizer = {
      {"version", "1.0"},
      {"added_tokens", json::array{json::object{{"id", kEndId},
                                                {"content", "<|im_end|>"},
                                                {"single_word", false},
                                                {"lstrip", false},
                                                {"rstrip", false},
                                                {"normalized", false},
                                                {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array{}}}}};
  return text::Tokenizer::from_json(json_text(tokenizer), "");
}

namespace {

void add_input_log_probs(ScriptedRequest& running) {
  const GenerateRequest& request = running.request;
  if (!request.return_logprob || request.logprob_start_len < 0) return;
  const auto length = static_cast<int64_t>(request.input_ids.size());
  for (int64_t i = request.logprob_start_len; i < length; ++i)
    running.pending.input_log_probs.push_back(i == 0 ? std::nullopt : std::optional(-0.25F));
}

/// The next token of the text.
void draw_text(const std::string& text, ScriptedRequest& running, WeightVersion version) {
  const SamplingParams& sampling = running.request.sampling;
  GenerateUpdate& update = running.pending;
  if (running.num_sampled == 0) add_input_log_probs(running);
  if (sampling.max_new_tokens > 0) {
    const auto i = static_cast<std::size_t>(running.num_sampled);
    const bool is_end = !text.empty() && i == text.size();
    const TokenId id = is_end ? kEndId : text.empty() ? 'a' : text[i];
    const float log_prob = -static_cast<float>(i + 1) / 2;
    running.draw(id, log_prob, version);
    if (running.request.top_logprobs_num > 0) update.output_top = {{{log_prob, id}}};
    if (running.request.return_top_p_token_ids) {
      update.top_p_ids = {id, 'z'};
      update.top_p_counts = {2};
    }
    if (is_end) update.finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = id};
    for (const std::string& stop : sampling.stop) {
      if (text.substr(0, i + 1).ends_with(stop))
        update.finish = FinishReason{.kind = FinishReason::Kind::kStop, .matched = stop};
    }
  }
  if (!update.finish && running.num_sampled >= sampling.max_new_tokens)
    running.finish(FinishReason::Kind::kLength);
}

}  // namespace

FakeEngine::FakeEngine(const std::string& text)
    : ScriptedEngine([text](ScriptedRequest& running,
                            WeightVersion version) { draw_text(text, running, version); },
                     Pace::kSteady) {
  version = 0;
  is_shared = false;
  has_unique_rids = true;
  if (text.empty())
    step_time = std::chrono::milliseconds(1);  // an endless answer need not be quick
  update_time = std::chrono::milliseconds(50);
  on_update_weights = [](const WeightUpdate& update) -> Expected<void> {
    const auto* directory = std::get_if<FromDirectory>(&update.source);
    if (directory != nullptr && directory->path.filename() == "qwen2")
      return failure("another shape");
    return {};
  };
}

}  // namespace slime::engine
