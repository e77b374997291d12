#pragma once

/// Updates to a request's caller, made from its newly sampled tokens.

#include <cstdint>
#include <optional>

#include "core/clock.h"
#include "core/sample.h"
#include "engine/request.h"
#include "kernels/cpu/sample.h"

namespace slime::engine {

FinishReason out_of_length();

/// Adds the token that a step drew at `position` of the request's tokens, with the weights of
/// `version`. Why the request ends with it, if it does; tokens behind it are taken back then.
std::optional<FinishReason> add_token(Request& request, int64_t position,
                                      kernels::SampledToken token, WeightVersion version);

/// Adds what a fast step of `round` drew at `position`, as long as nothing else became of the request's
/// tentative tokens meanwhile. One that would end the response is left to the step that verifies.
void add_tentative(Request& request, int64_t position, int64_t round,
                   const kernels::SampledToken& token);

/// The caller wants to be told now.
bool is_due(const Request& request);

/// Calls the request's callback with what it has not been told.
void deliver(Request& request, Clock::TimePoint now);

}  // namespace slime::engine
