#pragma once

/// The training service: sessions, one model that is trained, snapshots that are sampled, and the futures of
/// requests (docs/decisions/0153-training-by-requests.md). Knows the JSON of the protocol and no HTTP.
///
/// The thread of run() executes training and weight-saving requests, one at a time, in the order of the
/// model's seq_id; the sampler serves sampling requests. All other members are safe from any thread.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "config/run_config.h"
#include "core/clock.h"
#include "core/field_reader.h"
#include "core/json.h"
#include "setup/prompts.h"
#include "tinker/futures.h"
#include "tinker/request_order.h"
#include "tinker/sampler.h"
#include "tinker/trained_model.h"

namespace slime::tinker {

/// A request that is answered at once with an HTTP status and a sentence.
class Refusal : public std::runtime_error {
 public:
  Refusal(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

struct ServiceConfig {
  std::filesystem::path store;  // of weights that are saved by name
  bool takes_paths = false;     // weights may be saved to any path of this user's
  std::string model_name;       // what clients call the model
};

/// One class because who may sample, train and save follows from one model's requests, in one order.
class Service {
 public:
  /// `config` is validated. Loads the model. References outlive the object. Throws ConfigError.
  Service(const config::RunConfig& config, ServiceConfig service, const Clock& clock);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Trains until `is_over` says so, which is asked several times a second.
  void run(const std::function<bool()>& is_over);

  Futures& futures() { return futures_; }

  // The requests, by the names of their routes. They throw Refusal, and ConfigError for a body of another form.

  json::object create_session(const json::object& body);
  json::object session_heartbeat(const json::object& body);
  json::object finish_session(const std::string& session);
  json::object create_model(const json::object& body);
  json::object get_info(const json::object& body);
  json::object get_server_capabilities();
  json::object forward_backward(json::object body, bool is_forward_only);
  json::object optim_step(const json::object& body);
  json::object save_weights(const json::object& body);
  json::object load_weights(const json::object& body);
  json::object save_weights_for_sampler(const json::object& body);
  json::object weights_info(const json::object& body);
  json::object create_sampling_session(const json::object& body);
  json::object sampler(const std::string& sampling_session);
  json::object asample(const json::object& body);

  // This program's own.

  /// Texts or conversations to token ids.
  json::object encode(const json::object& body);
  json::object decode(const json::object& body);
  /// All flags.
  json::object flags() const;

 private:
  using Job = std::function<json::object()>;
  /// A job of the model's: its future, which gets the result.
  json::object enqueue(const FieldReader& fields, Job job);
  /// The same without a place in an order.
  json::object enqueue_now(Job job);
  std::function<void()> answering(std::string future, Job job);
  void push(std::vector<RequestOrder::Job> jobs);
  void require_model(const FieldReader& fields) const;
  std::string begin_model(const std::string& session, int64_t model_number);
  void require_session(const std::string& session) const;
  void forget_old_samples();
  json::object open_sampling_session(const std::string& id, SharedSnapshot snapshot);
  SharedSnapshot snapshot_of(const std::string& sampling_session);
  SharedSnapshot base_snapshot();
  std::filesystem::path place_of(const std::string& name, const std::string& kind) const;
  std::filesystem::path found(const std::string& path) const;

  const config::RunConfig& config_;
  const ServiceConfig service_;
  setup::ModelText text_;
  std::optional<text::ChatTemplate> chat_;
  std::string no_chat_;  // why there is no template
  TrainedModel model_;
  SharedSnapshot base_;  // guarded by base_mutex_
  std::mutex base_mutex_;
  std::unique_ptr<Sampler> sampler_;
  Futures futures_;

  struct KnownSamples {
    std::string future;
    json::array sequence_ids;
  };
  struct Named {
    SharedSnapshot snapshot;
    bool is_base = false;
    std::string path;
  };
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::set<std::string> sessions_;
  std::optional<std::string> model_id_;
  std::string model_session_;
  RequestOrder order_;
  std::map<std::string, std::string> created_;   // session and model_seq_id to the future
  std::map<std::string, Named> samplers_;        // by id
  std::deque<std::string> newest_samplers_;      // of snapshots of the trained model, oldest first
  std::map<std::string, KnownSamples> sampled_;  // sampling session and seq_id
  std::deque<std::string> sampled_order_;
  int64_t num_sessions_ = 0;
  int64_t num_samplers_ = 0;
  int64_t num_sequences_ = 0;
};

}  // namespace slime::tinker
