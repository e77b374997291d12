#include "config/problems.h"

#include "core/error.h"
#include "core/secret_urls.h"

namespace slime::config {

void Problems::throw_if_any() {
  if (messages_.empty()) return;
  for (std::string& message : messages_) message = without_passwords(message);
  throw ConfigError(messages_);
}

}  // namespace slime::config
