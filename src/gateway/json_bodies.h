#pragma once

/// JSON that clients and workers send through a gateway, as far as it is read here.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"

namespace slime::gateway {

/// The address in a client's {"url": ...}, for a worker to be added. Throws ConfigError.
std::string url_in_body(const std::string& body);

/// A client's body that opens a session. One without a name gets one: the requests of a name go to one
/// worker. What is no JSON object stays as it is, and the worker says what is wrong with it.
std::string named_session(std::string body);

/// A worker's answer whose `member` is a list, or nothing.
std::optional<json::object> object_with_list(const std::string& body, const std::string& member);

/// The ids in a worker's list of models, or nothing for what is no such list.
std::optional<std::vector<std::string>> models_in(const std::string& body);

/// Members of several workers' lists, each once: those of one id or name are one.
class MergedList {
 public:
  void add(const json::array& entries);
  json::array take() { return std::move(all_); }

 private:
  json::array all_;
};

}  // namespace slime::gateway
