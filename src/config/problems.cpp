#include "config/problems.h"

#include "core/error.h"
#include "core/secret_urls.h"

namespace slime::config {

void Problems::throw_if_any(const std::vector<std::string>& notes) {
  if (messages_.empty()) return;
  messages_.insert(messages_.end(), notes.begin(), notes.end());
  for (std::string& message : messages_) message = without_passwords(message);
  throw ConfigError(messages_);
}

}  // namespace slime::config
