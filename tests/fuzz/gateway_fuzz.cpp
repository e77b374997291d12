// What strangers and workers send through `slime router`, and what servers of others answer a run.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "engine/remote/sglang_answer.h"
#include "gateway/json_bodies.h"
#include "gateway/metrics.h"
#include "gateway/request_facts.h"
#include "gateway/workers.h"

namespace {

using slime::engine::EventSplitter;

/// Events of `text` that arrives in two parts; the number of them, or -1 for one that is too long.
int num_events(const std::string& text, std::size_t split) {
  EventSplitter events(1 << 10);
  int count = 0;
  try {
    for (const std::string& part : {text.substr(0, split), text.substr(split)}) {
      events.add(part);
      while (events.next()) ++count;
    }
  } catch (const slime::ConfigError&) {
    return -1;
  }
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const slime::gateway::MemberSpan& member : slime::gateway::top_members(text)) {
    const bool is_inside = member.value.data() >= text.data() &&
                           member.value.data() + member.value.size() <= text.data() + text.size();
    if (!is_inside || member.value.empty()) std::abort();
  }
  slime::net::HttpRequest request{
      .method = "POST", .path = "/generate", .query = "", .headers = {}, .body = text};
  (void)slime::gateway::facts_of(request);
  (void)slime::gateway::merge_metrics({{"http://a", text}, {"http://b", text}});
  (void)slime::gateway::parse_worker_url(text);
  try {
    (void)slime::gateway::url_in_body(text);
  } catch (const slime::ConfigError&) {
  }
  // A name is given once.
  const std::string named = slime::gateway::named_session(text);
  if (slime::gateway::named_session(named) != named) std::abort();
  (void)slime::gateway::models_in(text);
  if (const auto answer = slime::gateway::object_with_list(text, "sessions")) {
    const auto& entries = answer->at("sessions").get_array();
    slime::gateway::MergedList once, twice;
    once.add(entries);
    for (int i = 0; i < 2; ++i) twice.add(entries);
    if (once.take() != twice.take()) std::abort();
  }
  if (size < 256) {
    const int whole = num_events(text, size);
    for (std::size_t split = 0; split < size; ++split)
      if (num_events(text, split) != whole) std::abort();
  }
  slime::engine::GenerateRequest scored;
  scored.return_logprob = true;
  scored.top_logprobs_num = 1;
  scored.logprob_start_len = 0;
  slime::engine::SglangAnswer answer(scored);
  try {
    (void)answer.add(text);
    (void)answer.add(text);
  } catch (const slime::ConfigError&) {
  }
  return 0;
}
