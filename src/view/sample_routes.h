#pragma once

/// Routes of samples: tables, whole samples, groups side by side. Texts are read from the rollout files of
/// the rows that are asked for.
///
///   GET /api/samples?run=ID&...   rows of a table (view/sample_query.h), with excerpts of the texts
///   GET /api/sample?run=ID&step=N&place=I        a whole sample: the entry I of the step's file
///   GET /api/group?run=ID&step=N&group=G         whole samples of a prompt, with advantages
///   GET /api/steps?run=ID         [{"step", "samples", "groups", "dead", "reward"}, ...] of indexed steps
///   GET /api/alarms?run=ID        report/alarms.h

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/http_exchange.h"
#include "view/run_catalog.h"
#include "view/sample_query.h"

namespace slime::view {

/// The indexes of runs that somebody looked at, and the thread that fills them.
class SampleStore {
 public:
  SampleStore();
  ~SampleStore();
  SampleStore(const SampleStore&) = delete;
  SampleStore& operator=(const SampleStore&) = delete;

  std::shared_ptr<SampleIndex> index_of(const std::filesystem::path& folder);

  /// find_samples(), which is not made again while a table is scrolled.
  std::shared_ptr<const FoundSamples> find(const std::shared_ptr<SampleIndex>& index,
                                           const SampleQuery& query, const std::string& key);

 private:
  void run(const std::stop_token& stop);

  IndexBudget budget_;
  std::mutex mutex_;
  std::condition_variable_any wanted_;
  std::map<std::filesystem::path, std::shared_ptr<SampleIndex>> indexes_;  // guarded by mutex_
  std::vector<std::filesystem::path> recent_;  // guarded by mutex_; the last is the newest
  bool has_request_ = false;                   // guarded by mutex_; since the thread last looked
  std::string last_key_;                       // guarded by mutex_
  std::shared_ptr<const FoundSamples> last_found_;  // guarded by mutex_
  std::mutex search_;                               // one search for text at a time
  std::jthread thread_;
};

/// `catalog` and `store` outlive the routes.
void add_sample_routes(RunCatalog& catalog, SampleStore& store,
                       std::vector<net::HttpRoute>& routes);

}  // namespace slime::view
