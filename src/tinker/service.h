#pragma once

/// The training service: sessions, models that are trained, snapshots that are sampled, and the futures of
/// requests (docs/decisions/0157-tinkers-own-client.md). Knows the JSON of the protocol and no HTTP.
///
/// The thread of run() executes training and weight-saving requests, one at a time: of a model in the order
/// of seq_id, and of the model next that had the least time so far. Samplers serve sampling requests. All
/// other members are safe from any thread.

#include <atomic>
#include <chrono>
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
#include <vector>

#include "config/run_config.h"
#include "core/clock.h"
#include "core/field_reader.h"
#include "core/json.h"
#include "setup/prompts.h"
#include "tinker/adapter_sampler.h"
#include "tinker/futures.h"
#include "tinker/journal.h"
#include "tinker/lora_form.h"
#include "tinker/refusal.h"
#include "tinker/request_order.h"
#include "tinker/sampler.h"
#include "tinker/save_writer.h"
#include "tinker/trained_model.h"

namespace slime::tinker {

/// Without what clients write behind the name of a model: ":peft:262144".
inline std::string plain_name(const std::string& name) {
  return name.substr(0, name.find(":peft:"));
}

/// The model whose save a path names, "tinker://MODEL/weights/NAME"; empty: none's.
std::string saver_of(const std::string& path);

struct ServiceConfig {
  std::filesystem::path store;  // of weights that are saved by name
  bool takes_paths = false;     // weights may be saved to any path of this user's
  std::string model_name;       // what clients call the model
  int64_t max_models = 8;       // trained at once
  int64_t max_lora_rank = 128;
  /// Seconds of work after which a model's state is saved, between two updates; what comes behind it is done
  /// again after a restart.
  double state_seconds = 30;
  /// Without a request or a heartbeat, after which a session is over. Clients send one every ten seconds.
  std::chrono::seconds longest_silence{900};
};

/// One class because who may sample, train and save follows from the requests of all models.
class Service {
 public:
  /// `config` is validated. Loads the model. References outlive the object. Throws ConfigError.
  Service(const config::RunConfig& config, ServiceConfig service, const Clock& clock);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Trains until `is_over` says so, which is asked several times a second.
  void run(const std::function<bool()>& is_over);

  Futures& futures() { return futures_; }

  // The requests, by the names of their routes. They throw Refusal, and ConfigError for a body of another form.

  /// `owner`: who alone may name it, and what belongs to it.
  json::object create_session(const std::string& owner);
  /// Throws Refusal where a session, or a model, future, sampler or path of one, is somebody else's.
  void require_owner(const std::string& owner, const std::string& id) const;
  json::object session_heartbeat(const json::object& body);
  json::object finish_session(const std::string& session);
  json::object create_model(const json::object& body);
  json::object get_info(const json::object& body);
  json::object get_server_capabilities();
  json::object forward_backward(json::object body, bool is_forward_only);
  /// The same of a message in Protocol Buffers.
  json::object forward_backward_message(std::string body);
  json::object optim_step(const json::object& body);
  json::object save_weights(const json::object& body);
  json::object load_weights(const json::object& body);
  json::object save_weights_for_sampler(const json::object& body);
  json::object weights_info(const json::object& body);
  json::object create_sampling_session(const json::object& body);
  json::object sampler(const std::string& sampling_session);
  json::object training_runs(const std::string& owner) const;
  /// Of a model, or of one that is gone and has saved something.
  json::object training_run(const std::string& model);
  json::object checkpoints(const std::string& model) const;
  json::object delete_checkpoint(const std::string& path);
  json::object asample(const json::object& body);

  // This program's own.

  /// Texts or conversations to token ids.
  json::object encode(const json::object& body);
  json::object decode(const json::object& body);
  /// All flags.
  json::object flags() const;

 private:
  static constexpr std::size_t kMostWaiting = 1024;  // requests of one model, and for new models
  /// A model of a session: its requests, and where they have been done.
  struct Model {
    std::string id;
    std::string session;
    int64_t number = 0;                     // of the session's models
    json::object user_metadata;             // texts by name, that the client gave it
    std::shared_ptr<TrainedModel> trained;  // null: it is read from its state
    RequestOrder order;
    std::set<int64_t> writing;  // requests that are written to the journal now
    struct Ready {
      std::string future;
      std::function<void()> job;
    };
    std::deque<Ready> jobs;
    double seconds = 0;                 // that its jobs took
    std::atomic<int64_t> num_done = 0;  // the last request that was done, by its number
    int64_t num_answered = 0;           // the same of the process before
    /// Held by who saves or deletes what is saved by name: a deletion is behind a save or before it.
    std::mutex saving;
    /// run()'s thread: names ("weights/one") that the process before deleted behind the request of a number.
    std::multimap<int64_t, std::string> deleted;
    double unsaved_seconds = 0;  // of run()'s thread: since the newest state
    bool is_over = false;        // with its session
    bool is_restored() const { return trained != nullptr && num_done >= num_answered; }
  };
  using SharedModel = std::shared_ptr<Model>;
  /// What a sampling session samples from.
  struct Named {
    SharedSnapshot snapshot;  // null: it is read when it is wanted, or gone
    bool is_base = false;
    std::string path;                 // what the client saved
    std::string model;                // of a snapshot without a name
    int64_t order = 0;                // among those, in which they were taken
    std::filesystem::path directory;  // where its weights are; empty: in memory alone
  };
  using ModelJob = std::function<Answer(Model&)>;
  /// A job of a model's: its future, which gets the result. `make_job` gets the request's body.
  json::object enqueue(const std::string& model_id, AcceptedRequest request,
                       const std::function<ModelJob(std::string body)>& make_job);
  /// Of the fields model_id and seq_id.
  json::object enqueue(const char* route, json::object body);
  /// Writes it without the mutex, which `lock` holds before and after. Throws where its future has failed, and
  /// then without it.
  void write_down(Model& model, const AcceptedRequest& request, std::unique_lock<std::mutex>& lock);
  /// What a request does when its turn comes.
  ModelJob job_of(const std::string& route, std::shared_ptr<const json::object> body,
                  bool is_restored);
  /// What a training run is besides what it trains, with the time of `newest`; with the mutex.
  json::object described_run(const std::string& id, const std::filesystem::path& newest) const;
  json::object run_of(const Model& model) const;
  ModelJob saving_job(const json::object& body, const std::string& kind, bool is_restored);
  /// Takes a snapshot of an adapter, which is written behind the answer.
  void save_behind(Model& model, const std::filesystem::path& directory, bool overwrites);
  ModelJob loading_job(const json::object& body);
  ModelJob pass_job(bool is_forward_only, std::function<TrainingBody()> read);
  ModelJob message_job(std::shared_ptr<const std::string> message);
  /// The same of a body of JSON whose mistakes are the future's to say, when its turn comes.
  ModelJob job_or_failure(const std::string& route, json::object body, bool is_restored);
  /// With the mutex held: the job, with all that follows it, behind the model's others.
  void add_job(const SharedModel& model, const AcceptedRequest& request, ModelJob job);
  void do_request(Model& model, const AcceptedRequest& request, const ModelJob& job);
  /// What the process before had deleted when it had done the requests up to `done`.
  void delete_again(Model& model, int64_t done);
  /// With the model's saves held up: writes the deletion down where a restart would do the save again, and
  /// deletes what is saved there, written or not. Throws Refusal.
  void delete_saved(const std::string& model, const std::filesystem::path& directory,
                    int64_t behind);
  void keep_answer(const std::string& model, const AcceptedRequest& request, const Answer& answer);
  /// A job that makes a model, once for each session and number. `record`: what it is made of.
  json::object enqueue_creation(const std::string& session, int64_t number, json::object record);
  std::shared_ptr<TrainedModel> make_model(const json::object& record);
  /// The model whose weights a directory has; `restores`: its optimizer too. Throws ConfigError.
  std::shared_ptr<TrainedModel> read_model(const std::filesystem::path& directory, bool restores);
  json::object created_answer(const std::string& id, const json::object& record) const;
  // What outlives the process.
  void restore();
  void restore_model(const std::string& id, const json::object& record);
  /// What is known of requests that were answered, by their numbers.
  std::map<int64_t, AcceptedRequest> restore_answers(Model& model);
  /// Those behind request `done`, which are done again. How many there are.
  int64_t restore_requests(const SharedModel& model, int64_t done);
  /// Throws Refusal where it cannot be written.
  void save_state(Model& model);
  void save_snapshots(const Model& model);
  // With the mutex held: they return the models that ended, which forget_models() removes without it.

  /// Throws Refusal where that cannot be written: it goes on.
  std::vector<std::string> end_session(const std::string& session);
  std::vector<std::string> end_models_of(const std::string& session);
  /// From the store, but what clients saved.
  void forget_models(const std::vector<std::string>& ids);
  void end_silent_sessions();
  std::function<void()> answering(std::string future, std::function<Answer()> job);
  /// What is to be done next; nothing: all wait.
  std::function<void()> next_job();
  void give_up_late();
  SharedModel model_of(const std::string& id) const;
  /// Becomes one of the models. Throws ConfigError where there is no room for it.
  std::string add_model(const std::string& session, int64_t number, const json::object& record);
  std::shared_ptr<TrainedModel> make_whole();
  std::shared_ptr<TrainedModel> make_adapter(const model::AdapterForm& form, uint64_t seed);
  /// Why there are none, and what to do.
  std::string no_adapters() const;
  /// With the mutex held: fails what it has not done.
  void drop_requests(Model& model, const std::string& reason, Blame blame);
  /// No engine computes while `body` runs.
  void stand_still(const std::function<void()>& body);
  void sample(const SharedSnapshot& snapshot, engine::GenerateRequest request,
              engine::EngineClient::OnUpdate on_update);
  Sampler& whole_sampler(const SharedSnapshot& first);
  int64_t max_request_tokens();
  void require_session(const std::string& session) const;
  /// With the mutex held: it is not silent.
  void hear(const std::string& session);
  /// With the mutex held: keeps this snapshot in memory, and lets go of those that are beyond the newest.
  /// Returns their folders, to be removed without it.
  std::vector<std::filesystem::path> keep_newest(const std::string& sampling_session);
  void forget_old_samples();
  json::object open_sampling_session(const std::string& id, const std::string& model,
                                     SharedSnapshot snapshot);
  SharedSnapshot snapshot_of(const std::string& sampling_session);
  Named sampler_of(const std::string& sampling_session) const;
  SharedSnapshot base_snapshot();
  SharedSnapshot stored_snapshot(const std::filesystem::path& directory);
  std::filesystem::path place_of(const std::string& model, const std::string& name,
                                 const std::string& kind) const;
  /// Where a path of a client is, whether there is something or not.
  std::filesystem::path named_by(const std::string& path) const;
  /// The same where weights are, when those that are to be written there are. Throws Refusal for a model that is being
  /// restored, whose saves may be to come.
  std::filesystem::path found(const std::string& path) const;
  /// Throws Refusal where the model of a path is being restored: what lies there may be what was overwritten or
  /// deleted.
  void require_restored(const std::string& path) const;
  /// Of what a client saved. Throws ConfigError for a name that no model has.
  std::filesystem::path saved_folder(const std::string& model, const std::string& kind) const;

  const config::RunConfig& config_;
  const ServiceConfig service_;
  setup::ModelText text_;
  std::optional<text::ChatTemplate> chat_;
  std::string no_chat_;  // why there is no template
  const Clock& clock_;
  const std::unique_ptr<Journal> journal_;  // null: nothing outlives the process
  // Before the samplers, which tell them what they end.
  Futures futures_;
  std::atomic<int64_t> num_open_calls_ = 0;  // for samples

  std::shared_ptr<model::Network> base_;  // that adapters are trained beside; null: there are none
  std::unique_ptr<AdapterSampler> adapter_sampler_;  // where there are adapters
  std::shared_ptr<TrainedModel> whole_;  // of run()'s thread; null: nobody asked for one
  ModelLimits limits_;
  std::string architecture_;
  std::mutex whole_mutex_;                  // guards the next two
  std::unique_ptr<Sampler> whole_sampler_;  // of whole networks; null: nobody asked for one
  SharedSnapshot base_snapshot_;
  std::mutex reading_mutex_;  // held while a snapshot is read, which others may want too

  struct Session {
    std::string owner;
    std::chrono::steady_clock::time_point heard;
    bool is_over = false;
  };
  struct KnownSamples {
    std::string future;
    json::array sequence_ids;
  };
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;       // of no model yet
  std::map<std::string, Session> sessions_;      // also those that are over
  std::map<std::string, SharedModel> models_;    // by id
  std::map<std::string, std::string> created_;   // session and model_seq_id to the future
  std::map<std::string, Named> samplers_;        // by id
  std::deque<std::string> newest_samplers_;      // that hold a snapshot of their own, oldest first
  std::map<std::string, KnownSamples> sampled_;  // sampling session and seq_id
  std::deque<std::string> sampled_order_;
  int64_t num_sessions_ = 0;
  int64_t num_samplers_ = 0;
  int64_t num_snapshots_ = 0;
  int64_t num_sequences_ = 0;

  const std::unique_ptr<SaveWriter> saves_;  // last: it writes while the others are there
};

}  // namespace slime::tinker
