#pragma once

/// Rewards that another server gives: a judge (spec 16.8), or the teacher of on-policy distillation
/// (spec 6.6).

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>

#include "reward/reward.h"

namespace slime::reward {

struct RemoteReward {
  std::string url;                             // "--rm-url"
  int64_t num_attempts = 10;                   // "--remote-rm-attempts"
  std::chrono::milliseconds timeout{120'000};  // of one call
  std::chrono::milliseconds first_wait{1000};  // doubles per attempt, up to 30 times, plus up to 1x
  uint64_t seed = 0;                           // of the waits
};

/// POSTs {"prompt", "response", "label"} and returns the JSON of a 2xx answer. Everything else is
/// tried again; after the last attempt an Error names the server and the last failure. When `stop`
/// is requested the connection is closed, nothing is tried again, and the Error says so. An Error
/// shows no secret of the URL (core/secret_urls.h).
Expected<json::value> ask_judge(const RemoteReward& how, const Sample& sample,
                                const std::stop_token& stop = {});

/// POSTs the sample's tokens to an engine's /generate and returns
/// {"teacher_log_probs": [one per response token]}; retries and stops as ask_judge.
Expected<json::value> ask_teacher(const RemoteReward& how, double temperature, const Sample& sample,
                                  const std::stop_token& stop = {});

}  // namespace slime::reward
