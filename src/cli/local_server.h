#pragma once

/// A model behind this program's own chat routes, in this process and for this process alone.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/device.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "engine/http/served_model.h"
#include "engine/http/server.h"
#include "model/network.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {

struct LocalServerOptions {
  std::filesystem::path directory;
  std::filesystem::path adapter = {};  // that all answers take; empty: none
  std::string name;                    // of the model
  std::string dtype = "auto";
  std::string chat_template;  // a file; empty: the model's own
  DeviceOptions device;
  int64_t context_length = 0;  // 0: the model's
};

/// On a free port of loopback, with a key that nobody else has.
class LocalServer final {
 public:
  /// Loads the model. Throws ConfigError, also for a model without a chat template.
  explicit LocalServer(const LocalServerOptions& options);
  ~LocalServer();

  std::string url() const { return server_->url(); }
  const std::string& key() const { return key_; }
  /// "bfloat16, 32768 tokens"
  std::string description() const;

 private:
  const SystemClock clock_;
  std::string key_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<model::Network> network_;
  std::unique_ptr<engine::Engine> engine_;
  engine::ServedModel served_;
  std::unique_ptr<engine::ApiServer> server_;
};

}  // namespace slime::cli
