#pragma once

/// Ids of tool calls: the model's own where its form has one, random ones otherwise.

#include <cstdint>

#include "text/messages/call_format.h"
#include "text/messages/message_writer.h"

namespace slime::text {

/// kOpenAi: "call_" and 24 hexadecimal digits. kMistral: the model's, else nine letters and digits.
/// kKimi: the model's, else "functions.NAME:N", where N counts on from `num_earlier_calls` of the
/// conversation. The same seed gives the same ids.
MessageWriter::MakeId make_call_ids(CallIds ids, uint64_t seed, int num_earlier_calls = 0);

}  // namespace slime::text
