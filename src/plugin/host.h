#pragma once

/// One plug-in host as the program sees it: many calls at once, each of which is answered, whatever
/// the user's code does.
///
/// A thread owns the process and everything about it. Calls that have gathered go in one frame, and so
/// do answers. A host that dies, or that a late call holds up, is replaced. A function is called once:
/// the board of calls (plugin/call_board.h) says which one ran when the host died, and that one fails;
/// those that had not begun are called in the next host; answers that were not sent yet count; those
/// that had begun and waited for something fail too, since what they did may not be done twice.
/// docs/decisions/0106-attributed-deaths.md.

#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/expected.h"
#include "plugin/call_board.h"
#include "plugin/host_process.h"
#include "plugin/payload.h"
#include "plugin/questions.h"

namespace slime::plugin {

/// A function of the user's: what it is called for, and where it is found.
struct Hook {
  std::string hook;  // "reward"
  std::string path;  // module.name, file.py:name, file.py
};

/// What a function returned. The columns are those of the whole frame.
struct Answer {
  const json::object& value;
  const Columns& columns;
};

struct Call {
  int hook = 0;         // place among the hooks
  std::string subject;  // "sample 17": whom a traceback is about
  /// From the moment in which the function begins; 0: it may take as long as it likes.
  std::chrono::duration<double> timeout{};
  /// Its arguments, with lists as columns of the frame; asked again where the first host died before
  /// the function began.
  std::function<json::object(Columns&)> arguments;
  std::stop_token stop;  // nobody waits any more: it is cancelled, and answered or not
  /// Called once, on the host's thread. Throws nothing.
  std::function<void(const Expected<Answer>&)> answer;
  bool is_repeated = false;  // the host's own: it was lost once
};

struct HostConfig {
  std::string python = "python3";
  int number = 0;              // in the name of its log
  std::filesystem::path logs;  // a folder that exists
  json::object flags;          // `args`
  std::vector<Hook> hooks;
  std::chrono::duration<double> start_timeout{300};  // of an import
  uint64_t memory_bytes = 0;                         // of its tree of processes; 0: no limit
  /// Whether the run is to end: rewards then have `patience` each, whatever their deadline. Asked on the
  /// host's thread.
  std::function<bool()> hurries;
  std::chrono::duration<double> patience{30};
  /// A reward took longer than that, twice. Does not return: nothing that is whole comes any more.
  std::function<void(const std::string& why)> on_stuck;
  /// Calls that had begun and waited when another one brought the host down are made once more.
  bool repeats_lost_calls = false;
  /// What user code asks the program. Called on the host's thread, which it must not hold up; empty:
  /// nothing is answered.
  std::function<void(Question, ReplyFn)> on_question;
  /// It has written something to its standard output or error, for the first time.
  std::function<void(const std::filesystem::path& log)> on_output;
  /// For people: the traceback of each place in the code, the ends of hosts. On the host's thread.
  std::function<void(const std::string&)> tell;
};

/// One class because who may be called, who is late and who is to blame for a death follow from the
/// same lists of calls.
class Host {
 public:
  /// Starts it and returns at once.
  explicit Host(HostConfig config);
  /// Kills it. Calls that are not answered are not any more.
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// What keeps it from working, all of it; empty: it is ready. Waits for that. Called once.
  std::vector<std::string> problems() { return started_.get_future().get(); }

  /// Any thread.
  void call(Call call);
  int64_t num_open_calls() const;
  /// Any thread: GenerateState.aborted, by which conversations know that they are to return what they
  /// have.
  void set_aborted(bool is_aborted);

 private:
  using Steady = std::chrono::steady_clock;
  struct InFlight {
    Call call;
    int slot = 0;                                                  // on the board
    Steady::time_point patient_until = Steady::time_point::max();  // of a reward, when the run ends
  };

  /// A call that nobody waits for any more and that may still run.
  struct Leftover {
    int slot = 0;
    std::chrono::duration<double> timeout{};
  };

  using Calls = std::map<int64_t, InFlight>;

  void run(const std::stop_token& stop);
  void wait();
  void take_calls();
  void tell_aborted();
  /// That the run is to end: calls that are repeated until they succeed are not any more.
  void tell_hurry();
  void start();
  void send_calls();
  void send(uint32_t type, const Payload& payload);
  void write_rest();
  void read_frames();
  void take_frame(const net::Frame& frame);
  void take_ready(const json::object& head);
  void take_answer(const json::object& answer, const Columns& columns);
  void take_questions(const json::object& head, const Columns& columns);
  void send_replies();
  bool may_send(const Call& call) const;
  void hurry();
  Steady::time_point patient_until(const Call& call) const;
  bool is_late(int64_t id, const InFlight& each, Steady::time_point now) const;
  bool is_stuck(int64_t id, Steady::time_point now) const;
  bool end_stuck_leftover(Steady::time_point now);
  void look_at_clock();
  void drop_stopped();
  Calls::iterator abandon(Calls::iterator which);
  void die(const std::string& why, int64_t culprit = 0);
  void take_last_answers();
  std::string subjects_of(const std::vector<int64_t>& ids) const;
  void end_calls(const std::vector<int64_t>& culprits, const std::string& reason);
  void give_up(const std::vector<std::string>& problems);
  void finish(Call& call, const Expected<Answer>& answer);
  void fail(Call& call, const std::string& why);
  void tell(const std::string& text) const;

  const HostConfig config_;
  HostLog log_;
  int wake_ = -1;
  const std::shared_ptr<Replies> replies_;
  std::mutex mutex_;
  std::vector<Call> arrived_;  // guarded by mutex_
  std::atomic<bool> is_aborted_{false};
  std::atomic<int64_t> num_open_{0};

  // The thread's own.
  std::promise<std::vector<std::string>> started_;
  bool has_started_ = false;          // once
  bool has_output_ = false;           // as on_output says
  std::unique_ptr<CallBoard> board_;  // of the process, and after it
  std::unique_ptr<HostProcess> process_;
  std::string unsent_;
  bool is_ready_ = false;
  bool told_aborted_ = false;  // to the process
  bool told_hurry_ = false;
  std::vector<bool> is_coroutine_;       // by hook
  std::size_t num_plain_in_flight_ = 0;  // calls of functions that are none
  int64_t num_processes_ = 0;            // that were started
  Steady::time_point start_at_;          // not before
  Steady::time_point begun_;             // the process
  Steady::time_point looped_;            // its event loop was last seen to go on
  int64_t loop_count_ = -1;
  std::deque<Call> waiting_;
  Calls in_flight_;
  std::map<int64_t, Leftover> abandoned_;  // calls that nobody waits for, by id
  int64_t next_id_ = 1;
  int deaths_in_row_ = 0;  // without an answer between them
  bool is_hurried_ = false;
  int num_late_in_hurry_ = 0;  // hosts that were killed then
  std::optional<std::string> broken_;
  std::map<std::string, int64_t> places_;  // that tracebacks were shown of
  std::jthread thread_;                    // last: it uses all of it
};

}  // namespace slime::plugin
