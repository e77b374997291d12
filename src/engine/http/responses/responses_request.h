#pragma once

/// Request of /v1/responses as a chat request.
///
///   {"instructions": "...", "input": [...], "tools": [...], "reasoning": {"effort": "low"},
///    "text": {"format": {...}}, "store": false, "stream": true, "max_output_tokens": 600}
///
/// Nothing is stored: `store` true is answered as false, and previous_response_id finds nothing.

#include <memory>
#include <string>
#include <vector>

#include "engine/chat/chat_prompt.h"
#include "engine/chat/chat_request.h"
#include "engine/http/openai_fields.h"
#include "engine/http/responses/responses_tools.h"
#include "engine/http/responses/responses_writer.h"

namespace slime::engine {

struct ResponsesRequest {
  ChatRequest chat;
  OpenAiForm form;
  ResponsesTools tools;
  ResponsesForm answer;   // without its id and time
  json::object metadata;  // the client's
  std::vector<std::string> warnings;
  std::vector<std::string> ignored_fields;
};

/// Throws ConfigError with every problem, each naming its field.
ResponsesRequest read_responses_request(const json::object& body, const ServedModel& model);

struct ResponsesCall {
  ResponsesRequest request;  // its chat request was moved from
  ChatCall chat;
};

ResponsesCall parse_responses_call(const json::object& body, const ServedModel& model,
                                   std::shared_ptr<ChatSession> session = nullptr);

}  // namespace slime::engine
