#pragma once

/// The memory that outlives the process: files of a store, each of which is there whole or not at all.
///
///   STORE/MODEL/{weights,sampler_weights}/NAME   what clients saved
///   STORE/MODEL/requests/7.request, 7.answer     accepted behind the newest state, and what was answered
///   STORE/MODEL/deleted/{weights,sampler_weights}/NAME.deleted   behind which request a client deleted it
///   STORE/MODEL/states/6                         weights, moments and counters behind request 6
///   STORE/MODEL/snapshots/NUMBER                 of sampling sessions
///   STORE/.service/{sessions,models,samplers}/   an object of JSON for each
///
/// Written before a client is told (adapters for sampling after it, while the request is here:
/// tinker/save_writer.h), and not synced: it is there after kill -9, not after a power cut.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/descriptor.h"
#include "core/json.h"

namespace slime::tinker {

/// A request that trains or saves, as it came.
struct AcceptedRequest {
  int64_t seq_id = 0;
  std::string route;
  std::string future;
  bool is_message = false;  // Protocol Buffers, else JSON
  std::string body;
};

class Journal {
 public:
  enum class Kind { kSession, kModel, kSampler };

  /// Throws ConfigError where another process uses the store, or it cannot be written.
  explicit Journal(std::filesystem::path store);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// How many processes have used the store, this one included.
  int64_t num_starts() const { return num_starts_; }

  // Any thread, one object or request at a time. What cannot be written is refused with 503 and the reason.

  void write(Kind kind, const std::string& id, const json::object& what) const;
  void remove(Kind kind, const std::string& id) const;
  std::map<std::string, json::object> read(Kind kind) const;

  void accept(const std::string& model, const AcceptedRequest& request) const;
  /// The same with what it was answered as its body.
  void answer(const std::string& model, const AcceptedRequest& answer) const;
  /// In the order of their numbers, those above `behind`.
  std::vector<AcceptedRequest> requests(const std::string& model, int64_t behind) const;
  std::vector<AcceptedRequest> answers(const std::string& model) const;
  /// The highest number of those; 0: there are none.
  int64_t last_request(const std::string& model) const;

  /// A client deleted what a model saved as `name` ("weights/one") behind this request. Saves up to that are done
  /// again after a restart, and deleted again.
  void note_deletion(const std::string& model, const std::string& name, int64_t behind) const;
  void take_back_deletion(const std::string& model, const std::string& name) const;
  /// By the numbers of their requests, those above `behind`.
  std::multimap<int64_t, std::string> deletions(const std::string& model, int64_t behind) const;

  /// Removes requests and deletions up to this number, and answers that are much older.
  void forget(const std::string& model, int64_t up_to) const;
  /// Removes all of a model but what clients saved.
  void forget_model(const std::string& model) const;

  std::filesystem::path folder(const std::string& model) const;
  /// The newest state, and the number of the request that it is behind; an empty path: there is none.
  std::pair<int64_t, std::filesystem::path> newest_state(const std::string& model) const;
  std::filesystem::path state(const std::string& model, int64_t seq_id) const;

 private:
  std::filesystem::path place(Kind kind) const;
  void write_request(const std::string& model, const AcceptedRequest& request,
                     std::string_view suffix) const;
  std::vector<AcceptedRequest> read_requests(const std::string& model, std::string_view suffix,
                                             int64_t behind) const;

  const std::filesystem::path store_;
  int64_t num_starts_ = 0;
  Descriptor lock_;
};

/// Whether `write` was done. What it throws is told on stderr, after `what`.
bool write_or_tell(std::string_view what, const std::function<void()>& write);

/// The name of a file or folder for an id, which has colons.
std::string stored_name(std::string_view id);

}  // namespace slime::tinker
