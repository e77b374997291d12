#pragma once

/// For tests: a session beside an engine that samples what a test says, clients that ask in it, and the
/// invariant of what is trained.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "engine/chat/chat_choice.h"
#include "engine/chat/chat_model.h"
#include "engine/chat/templates_for_tests.h"
#include "engine/http/anthropic/anthropic_request.h"
#include "engine/http/chat_completions_request.h"
#include "engine/sessions/session_call.h"
#include "engine/sessions/session_store.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

/// A chat template with its control tokens, and those that end a turn without and with a call.
struct TemplateFamily {
  const char* name;
  const char* source;
  std::vector<std::string> marks;
  std::string end, end_of_calls;
};

/// Five manners of published templates.
inline std::vector<TemplateFamily> template_families() {
  // Thoughts are shown behind the last question alone, and the last message gets an empty one.
  constexpr const char* kThinking =
      R"({%- for t in tools or [] %}{{- '<|im_start|>system\n' + (t | tojson) + '<|im_end|>\n' }}{%- endfor %})"
      R"({%- set ns = namespace(q=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.q = loop.index0 %}{%- endif %}{%- endfor %})"
      R"({%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{%- set thought = m.reasoning_content or '' %})"
      R"({%- if m.role == 'assistant' and loop.index0 > ns.q and (loop.last or thought) %}{{- '<think>\n' + thought + '\n</think>\n\n' }}{%- endif %})"
      R"({{- m.content or '' }}{%- for c in m.tool_calls or [] %}{{- '\n<tool_call>\n' + ({'name': c.function.name, 'arguments': c.function.arguments} | tojson) + '\n</tool_call>' }}{%- endfor %})"
      R"({{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %})";
  constexpr const char* kPlain =
      R"({%- for t in tools or [] %}{{- t | tojson }}{%- endfor %}{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + (m.content or '') | trim }})"
      R"({%- for c in m.tool_calls or [] %}{{- (c.function | tojson) }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %})";
  // A turn is ended by the mark of whoever comes next.
  constexpr const char* kNextRole =
      R"({{- '[gMASK]' }}{%- for t in tools or [] %}{{- '<|system|>' + (t | tojson) }}{%- endfor %})"
      R"({%- for m in messages %}{{- '<|observation|>' if m.role == 'tool' else '<|' + m.role + '|>' }}{{- '\n' + (m.content or '') }})"
      R"({%- for c in m.tool_calls or [] %}{{- '\n' + c.function.name + '\n' + (c.function.arguments | tojson) }}{%- endfor %}{%- endfor %})"
      R"({%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %})";
  // Calls end otherwise than answers do, and a tool's message needs a call before it.
  constexpr const char* kChannels =
      R"({%- for t in tools or [] %}{{- t | tojson }}{%- endfor %}{%- set ns = namespace(call=none) %})"
      R"({%- for m in messages %}{%- if m.role == 'assistant' %}{%- if m.tool_calls %}{%- for c in m.tool_calls %}{%- set ns.call = c.function.name %})"
      R"({{- '<|start|>assistant to=' + c.function.name + '<|message|>' + (c.function.arguments | tojson) + '<|call|>' }}{%- endfor %})"
      R"({%- else %}{{- '<|start|>assistant<|message|>' + m.content + ('<|return|>' if loop.last and not add_generation_prompt else '<|end|>') }}{%- endif %})"
      R"({%- elif m.role == 'tool' %}{%- if not ns.call %}{{- raise_exception('no call') }}{%- endif %}{{- '<|start|>' + ns.call + '<|message|>' + m.content + '<|end|>' }})"
      R"({%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %})";
  // No control token in the template.
  constexpr const char* kWords =
      R"({%- for t in tools or [] %}{{- t | tojson }}{%- endfor %}{%- for m in messages %}{{- m.role | upper + ': ' + (m.content or '') | trim }})"
      R"({%- for c in m.tool_calls or [] %}{{- (c.function | tojson) }}{%- endfor %}{{- '\n\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- 'ASSISTANT:' }}{%- endif %})";
  return {{"thinking", kThinking, {"<|im_start|>", "<|im_end|>"}, "<|im_end|>", "<|im_end|>"},
          {"plain",
           kPlain,
           {"<|im_start|>", "<|im_end|>", "<|endoftext|>"},
           "<|im_end|>",
           "<|endoftext|>"},
          {"next_role",
           kNextRole,
           {"[gMASK]", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"},
           "<|user|>",
           "<|observation|>"},
          {"channels",
           kChannels,
           {"<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"},
           "<|return|>",
           "<|call|>"},
          {"words", kWords, {"</s>"}, "</s>", "</s>"}};
}

/// A token per byte and per control token, and one for "an" that no text is encoded to: what was sampled
/// cannot be told from its text.
inline std::unique_ptr<text::Tokenizer> make_ambiguous_tokenizer(
    const std::vector<std::string>& marks, const std::string& eos) {
  json::object vocab;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {  // as byte-level BPE spells them
    const bool is_visible = (byte >= 0x21 && byte < 0x7f) || (byte >= 0xa1 && byte != 0xad);
    const int code = is_visible ? byte : next++;
    std::string spelling;
    if (code < 0x80) {
      spelling = static_cast<char>(code);
    } else {
      spelling = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
    }
    vocab[spelling] = byte;
  }
  vocab["an"] = 256;
  json::array added;
  for (const std::string& mark : marks) {
    added.push_back({{"id", 257 + added.size()},
                     {"content", mark},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  const json::value tokenizer = {
      {"version", "1.0"},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array{}}}}};
  return text::Tokenizer::from_json(json_text(tokenizer),
                                    json_text(json::object{{"eos_token", eos}}));
}

/// A path of a session's turns, as training has it.
struct PathSample {
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  std::vector<bool> is_trained;
};

/// Paths from the first turn to each last one; what several share is trained in the first.
inline std::vector<PathSample> samples_of(const Session& session) {
  std::vector<PathSample> samples;
  std::vector<int64_t> trained;
  session.read_turns([&](const SessionTurn& turn, bool) {
    if (!turn.children.empty()) return;
    std::vector<const SessionTurn*> path;
    for (const SessionTurn* each = &turn; each != nullptr; each = each->parent)
      path.insert(path.begin(), each);
    PathSample& sample = samples.emplace_back();
    const auto append = [&](const std::vector<TokenId>& ids, bool is_trained) {
      sample.tokens.insert(sample.tokens.end(), ids.begin(), ids.end());
      sample.is_trained.resize(sample.tokens.size(), is_trained);
    };
    for (const SessionTurn* each : path) {
      append(each->context, false);
      sample.log_probs.resize(sample.tokens.size(), 0.0F);
      const bool is_new = std::ranges::find(trained, each->id) == trained.end();
      append(each->output, is_new);
      sample.log_probs.insert(sample.log_probs.end(), each->log_probs.begin(),
                              each->log_probs.end());
      trained.push_back(each->id);
    }
  });
  return samples;
}

/// Sampled tokens of a request, and what ends it: a control token, a stop string or nothing.
struct SampledText {
  std::string text;
  std::string end;
};

struct SessionWorld {
  struct Drawn {
    std::vector<TokenId> prompt, output;
    std::vector<float> log_probs;
  };

  explicit SessionWorld(const TemplateFamily& family_ = template_families().front(),
                        SessionOptions options = {}, bool reads_thoughts = true)
      : family(family_),
        tokenizer(make_ambiguous_tokenizer(family.marks, family.end)),
        served{.name = "chars",
               .context_length = 1 << 20,
               .vocab_size = 300,
               .sampling_defaults = {},
               .tokenizer = tokenizer.get(),
               .longest_token_bytes = longest_token_bytes(*tokenizer),
               .chat = std::make_shared<const ChatModel>(
                   render_fn(family.source), "", tokenizer.get(),
                   ChatParsers{.tool_calls = "qwen25",
                               .reasoning = reads_thoughts ? "qwen3" : "none"})},
        store(served, {}),
        session(store.open("s", std::move(options))) {}

  std::string decode(const std::vector<TokenId>& ids) const {
    return tokenizer->decode(ids, false);
  }

  std::vector<TokenId> sampled(const std::string& text) const {
    std::vector<TokenId> ids;
    for (const TokenId id : tokenizer->encode(text)) {
      if (id == 'n' && !ids.empty() && ids.back() == 'a') {
        ids.back() = 256;
      } else {
        ids.push_back(id);
      }
    }
    return ids;
  }

  /// Asks with a body of chat completions or of Anthropic's messages; the message as it is recorded.
  /// `is_read`: the client waits for its answer.
  json::object ask(const json::object& body, const SampledText& said, bool is_anthropic = false,
                   bool is_read = true) {
    const auto call_of_session = std::make_shared<SessionCall>(session);
    const ServedModel& model = call_of_session->model();
    const ChatCall call = is_anthropic ? parse_anthropic_call(body, model, call_of_session).chat
                                       : parse_chat_completions(body, model, call_of_session).chat;
    ChatChoice choice(call.reading, call.requests.front());
    GenerateUpdate update;
    update.output_ids = sampled(said.text + said.end);
    FinishReason finish;
    if (said.end.empty()) {
      finish.kind = FinishReason::Kind::kLength;
    } else if (std::ranges::find(family.marks, said.end) != family.marks.end()) {
      finish.matched = update.output_ids.back();
    } else {
      finish.matched = said.end;
    }
    update.finish = finish;
    for (std::size_t i = 0; i < update.output_ids.size(); ++i) {
      update.output_log_probs.push_back(-static_cast<float>(drawn.size() + 1) -
                                        static_cast<float>(i) / 1024);
    }
    update.versions = {{3, static_cast<int64_t>(update.output_ids.size())}};
    drawn.push_back({call.requests.front().input_ids, update.output_ids, update.output_log_probs});
    choice.add(update);
    const ChatChoice* choices = &choice;
    call.session->record({&choices, 1});
    if (!is_read) {
      call.session->forget();
      drawn.pop_back();
    }
    return message_of(choice.message());
  }

  static json::object message_of(const text::Message& parts) {
    json::object message{{"role", "assistant"}, {"content", parts.content}};
    if (!parts.reasoning.empty()) message["reasoning_content"] = parts.reasoning;
    json::array calls;
    for (const text::ToolCall& each : parts.calls) {
      calls.push_back({{"id", each.id},
                       {"type", "function"},
                       {"function", {{"name", each.name}, {"arguments", each.arguments}}}});
    }
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    return message;
  }

  /// Each output is trained in one sample, behind exactly its prompt, with its log-probs, and nothing else
  /// is.
  void expect_each_token_is_trained_once() const {
    const std::vector<PathSample> samples = samples_of(*session);
    std::vector<std::vector<bool>> covered;
    for (const PathSample& sample : samples) covered.emplace_back(sample.tokens.size());
    for (const Drawn& each : drawn) EXPECT_TRUE(cover(each, samples, covered));
    for (std::size_t i = 0; i < samples.size(); ++i)
      EXPECT_EQ(samples[i].is_trained, covered[i]) << "a token is trained that was not sampled";
  }

  std::size_t num_samples() const { return samples_of(*session).size(); }

  const TemplateFamily family;
  const std::unique_ptr<text::Tokenizer> tokenizer;
  const ServedModel served;
  SessionStore store;
  const std::shared_ptr<Session> session;
  std::vector<Drawn> drawn;

 private:
  static bool cover(const Drawn& each, const std::vector<PathSample>& samples,
                    std::vector<std::vector<bool>>& covered) {
    const std::size_t begin = each.prompt.size(), end = begin + each.output.size();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const PathSample& sample = samples[i];
      if (sample.tokens.size() < end) continue;
      bool is_it =
          std::ranges::equal(each.prompt, std::span(sample.tokens).first(begin)) &&
          std::ranges::equal(each.output, std::span(sample.tokens).subspan(begin, end - begin)) &&
          std::ranges::equal(each.log_probs,
                             std::span(sample.log_probs).subspan(begin, end - begin));
      for (std::size_t at = begin; is_it && at < end; ++at)
        is_it = sample.is_trained[at] && !covered[i][at];
      if (!is_it) continue;
      std::fill(covered[i].begin() + static_cast<std::ptrdiff_t>(begin),
                covered[i].begin() + static_cast<std::ptrdiff_t>(end), true);
      return true;
    }
    return false;
  }
};

inline const json::object& look_tool() {
  static const json::object kTool =
      parse_json(R"({"type": "function", "function": {"name": "look", "description": "d",)"
                 R"( "parameters": {"type": "object"}}})",
                 "tool")
          .as_object();
  return kTool;
}

inline json::array first_messages() {
  return parse_json(R"([{"role": "system", "content": "You help."},)"
                    R"( {"role": "user", "content": "a question"}])",
                    "messages")
      .as_array();
}

inline std::string call_text(const json::object& arguments) {
  return "<tool_call>\n" + json_text(json::object{{"name", "look"}, {"arguments", arguments}}) +
         "\n</tool_call>";
}

/// Results of the message's calls, or else something of the user's.
inline void append_next(const json::object& message, json::array& messages,
                        const std::string& user = "and then?", const std::string& tool = "sunny") {
  if (!message.contains("tool_calls")) {
    messages.push_back({{"role", "user"}, {"content", user}});
    return;
  }
  for (const json::value& call : message.at("tool_calls").as_array()) {
    messages.push_back({{"role", "tool"}, {"tool_call_id", call.at("id")}, {"content", tool}});
  }
}

}  // namespace slime::engine
