#include "reward/remote.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "core/error.h"
#include "core/random.h"
#include "core/secret_urls.h"
#include "net/http_client.h"

namespace slime::reward {
namespace {

constexpr std::size_t kAnswerLimit = std::size_t{64} << 20;

/// What to make of a good answer; an Error asks for another attempt.
using Reader = std::function<Expected<json::value>(const json::value& answer)>;

/// Returns early when `stop` is requested.
void sleep_for(std::chrono::duration<double> time, const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any stopped;
  stopped.wait_for(lock, stop, time, [] { return false; });
}

Expected<json::value> ask_once(const RemoteReward& how, const std::string& body, const Reader& read,
                               const std::stop_token& stop) {
  const auto response = net::http_call({.method = "POST",
                                        .url = how.url,
                                        .body = body,
                                        .timeout = how.timeout,
                                        .response_limit_bytes = kAnswerLimit},
                                       stop);
  if (!response) return failure(response.error().message);
  if (response->status < 200 || response->status > 299) {
    return failure(fmt::format("{} answered with status {}: {}", how.url, response->status,
                               response->body.substr(0, 200)));
  }
  try {
    return read(parse_json(response->body, "answer of " + how.url));
  } catch (const ConfigError& error) {
    return failure(error.what());
  }
}

/// Failures are shown and logged in many places, and --rm-url may hold a key: none leaves here with
/// it, whatever text names the URL.
Expected<json::value> ask(const RemoteReward& how, const Sample& sample, const json::object& body,
                          const Reader& read, const std::stop_token& stop) {
  const std::string text = json_text(body);
  std::string last;
  for (int64_t attempt = 0; attempt < how.num_attempts; ++attempt) {
    if (attempt > 0) {
      const double doubled = static_cast<double>(int64_t{1} << std::min<int64_t>(attempt - 1, 5));
      const double waits =
          std::min(doubled, 30.0) +
          uniform(how.seed, static_cast<uint64_t>(sample.ordinal), static_cast<uint64_t>(attempt));
      sleep_for(waits * how.first_wait, stop);
    }
    if (stop.stop_requested())
      return failure(without_passwords(how.url) + ": nobody waits for the answer any more");
    Expected<json::value> answer = ask_once(how, text, read, stop);
    if (answer) return answer;
    last = without_passwords(answer.error().message);
  }
  return failure(fmt::format("no answer after {} attempts: {}", how.num_attempts, last));
}

}  // namespace

Expected<json::value> ask_judge(const RemoteReward& how, const Sample& sample,
                                const std::stop_token& stop) {
  return ask(
      how, sample,
      {{"prompt", sample.prompt}, {"response", sample.response}, {"label", sample.label}},
      [](const json::value& answer) -> Expected<json::value> { return answer; }, stop);
}

Expected<json::value> ask_teacher(const RemoteReward& how, double temperature, const Sample& sample,
                                  const std::stop_token& stop) {
  const json::object sampling{
      {"temperature", temperature}, {"max_new_tokens", 0}, {"skip_special_tokens", false}};
  const auto response_length = static_cast<std::size_t>(sample.response_length());
  const auto read = [&](const json::value& answer) -> Expected<json::value> {
    json::error_code absent;
    const json::value* scores = answer.find_pointer("/meta_info/input_token_logprobs", absent);
    const json::array* list = scores == nullptr ? nullptr : scores->if_array();
    // The first token of a sequence has no log-prob, so the response may not start there.
    if (list == nullptr || list->size() < response_length + 1) {
      return failure(how.url + ": meta_info.input_token_logprobs lacks tokens of the sample");
    }
    json::array log_probs;
    for (std::size_t i = list->size() - response_length; i < list->size(); ++i) {
      const json::array* entry = (*list)[i].if_array();
      if (entry == nullptr || entry->empty() || !entry->front().is_number())
        return failure(how.url + ": an entry of input_token_logprobs has no log-prob");
      log_probs.push_back(entry->front());
    }
    return json::object{{"teacher_log_probs", std::move(log_probs)}};
  };
  return ask(how, sample,
             {{"input_ids", json::value_from(sample.tokens)},
              {"sampling_params", sampling},
              {"return_logprob", true},
              {"logprob_start_len", 0}},
             read, stop);
}

}  // namespace slime::reward
