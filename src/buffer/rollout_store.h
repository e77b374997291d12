#pragma once

/// The rollout buffer as a service: what was acknowledged is on the disk, whatever happens next.
///
/// One thread owns groups and log. Requests that arrive while it syncs share the next sync. A record
/// is on the disk before anybody hears of it: a write that was acknowledged is there after a kill,
/// and a group that left is never given out again. Once the disk refuses, every request is told why
/// until a restart, which begins from what the disk has.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "buffer/append_file.h"
#include "buffer/rollout_groups.h"
#include "buffer/rollout_log.h"
#include "core/bounded_queue.h"

namespace slime::buffer {

struct RolloutStoreConfig {
  std::filesystem::path folder;   // made when it is not there
  int64_t group_size = 16;        // until a generator begins
  int64_t max_items = 1'000'000;  // that wait; more are refused, but for groups begun
  std::size_t max_bytes = std::size_t{4} << 30;             // of their texts
  std::size_t answer_limit_bytes = std::size_t{256} << 20;  // the first group comes whatever it has
  int64_t rewrite_bytes = int64_t{64} << 20;  // a log of so much, and twice what it began with
  std::size_t queue_limit = 8192;
};

enum class Refusal {
  kContradicts,  // what waits is of another task or group size
  kFull,
  kDisk,
  kStopping
};
struct RolloutRefusal {
  Refusal refusal = Refusal::kFull;
  std::string message;
};
template <typename T>
using RolloutAnswer = Expected<T, RolloutRefusal>;

struct WriteReceipt {
  bool is_new = true;  // false: an item of its uid is here already
};
struct GivenGroups {
  std::vector<RolloutGroup> groups;
  WrittenSince written;  // since the last time
};
struct RolloutCounts {
  std::string task_type;
  int64_t group_size = 0;
  std::size_t num_whole = 0, num_filling = 0;
  int64_t num_items = 0, num_given = 0;
  std::size_t num_bytes = 0;
};

class RolloutStore final {
 public:
  template <typename T>
  using Done = std::function<void(RolloutAnswer<T>)>;

  /// Reads the log. Throws ConfigError when it is damaged, or the folder is in use or cannot be
  /// written.
  explicit RolloutStore(RolloutStoreConfig config);
  /// Requests that wait are told kStopping.
  ~RolloutStore();
  RolloutStore(const RolloutStore&) = delete;
  RolloutStore& operator=(const RolloutStore&) = delete;

  // Any thread. `done` is called once, on the store's thread, and should only hand over.
  void write(RolloutItem item, Done<WriteReceipt> done);
  /// At most `max_groups`, whole ones, the oldest first; perhaps none. A repeated `request_id` gets
  /// what it got before.
  void take(std::size_t max_groups, std::string request_id, Done<GivenGroups> done);
  void begin(std::string task_type, int64_t group_size, Done<RolloutCounts> done);
  void count(Done<RolloutCounts> done);

  /// Bytes of an unfinished record that the constructor cut from the log's end.
  int64_t torn_bytes() const { return torn_bytes_; }

 private:
  struct Write {
    RolloutItem item;
    Done<WriteReceipt> done;
  };
  struct Take {
    std::size_t max_groups;
    std::string request_id;
    Done<GivenGroups> done;
  };
  struct Begin {
    std::string task_type;
    int64_t group_size;
    Done<RolloutCounts> done;
  };
  struct Count {
    Done<RolloutCounts> done;
  };
  using Request = std::variant<Write, Take, Begin, Count>;
  class FolderLock;
  struct Log {
    std::unique_ptr<AppendFile> file;
    int64_t bytes = 0;
    int64_t rewrite_at = 0;  // bytes
    std::string unwritten;   // records of the next commit
    std::string error;       // of the disk
  };

  void submit(Request request);
  void serve();
  void carry_out(Request request);
  void carry_out(Write write);
  void carry_out(Take take);
  void carry_out(Begin begin);
  void carry_out(Count count);
  /// Tells what happened once the log has it.
  void commit();
  /// Without what has been given out.
  void rewrite_log_if_worth();
  RolloutCounts counts() const;
  /// The record is a part of the next commit, and so is the answer.
  template <typename T>
  void answer(const Done<T>& done, RolloutAnswer<T> value);
  void append(const RolloutRecord& record);

  const RolloutStoreConfig config_;
  std::unique_ptr<FolderLock> lock_;
  int64_t torn_bytes_ = 0;
  BoundedQueue<Request> requests_;

  // Of the store's thread.
  RolloutGroups groups_;
  Log log_;
  std::vector<std::function<void(const std::string&)>> untold_;  // answers; empty: it worked

  std::jthread thread_;
};

}  // namespace slime::buffer
