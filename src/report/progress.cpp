#include "report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/interrupt.h"
#include "core/safe_text.h"

namespace slime::report {
namespace {

constexpr auto kRedrawPeriod = std::chrono::milliseconds(120);

/// Nobody should have to wonder for longer whether a run that is only logged still goes on.
constexpr auto kLongestSilence = std::chrono::seconds(30);
constexpr auto kSilencePeriod = std::chrono::milliseconds(200);  // between two looks at the clock

void set_figure(std::vector<Figure>& figures, std::string_view name, double value) {
  const auto found = std::ranges::find(figures, name, &Figure::first);
  if (found != figures.end()) {
    found->second = value;
  } else {
    figures.emplace_back(name, value);
  }
}

}  // namespace

Progress::Progress(ProgressOptions options, const Terminal& terminal, const Clock& clock)
    : terminal_(terminal),
      label_(options.label.empty() ? "" : options.label + ": "),
      clock_(clock),
      times_(clock, options.first_step),
      last_line_(clock.now()) {
  state_.title = std::move(options.title);
  state_.num_steps = options.num_steps;
  state_.steps_done = options.first_step;
  core::Interrupt::leave_words_to_a_display(terminal_.is_live);
  display_ = std::jthread([this](const std::stop_token& stop) {
    terminal_.is_live ? redraw_until_stopped(stop) : report_until_stopped(stop);
  });
}

Progress::~Progress() { stop_display(); }

void Progress::stop_display() {
  if (!display_.joinable()) return;
  display_.request_stop();
  display_.join();
  core::Interrupt::leave_words_to_a_display(false);
}

void Progress::phase_begin(std::string_view name, std::string_view unit, int64_t total) {
  const std::lock_guard lock(mutex_);
  end_phase();
  times_.begin_phase(name);
  state_.phase = name;
  state_.unit = unit;
  state_.units_total = total;
}

void Progress::end_phase() {
  times_.end_phase();
  phase_tokens_ = 0;
  state_.phase.clear();
  state_.units_done = 0;
  state_.units_total = 0;
}

void Progress::reached(int64_t units, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  state_.units_done = units;
  phase_tokens_ = tokens;
}

std::vector<PhaseTime> Progress::phase_times() {
  const std::lock_guard lock(mutex_);
  return times_.step_phases();
}

void Progress::step_done(StepSummary summary) {
  std::unique_lock lock(mutex_);
  end_phase();
  state_.steps_done = summary.step + 1;
  if (!summary.figures.empty()) state_.curve.push_back(summary.figures.front().second);
  state_.figures = std::move(summary.figures);
  state_.phase_times = times_.end_step(state_.steps_done);
  for (PhaseTime& phase : state_.phase_times) {
    const auto rate = std::ranges::find(summary.tokens_per_second, phase.name, &Figure::first);
    if (rate != summary.tokens_per_second.end()) phase.tokens_per_second = rate->second;
  }
  state_.memory = std::move(summary.memory);
  update_times();
  if (terminal_.is_live) return;
  print_line(step_line(state_));
}

void Progress::evaluated(std::string_view name, double value) {
  const std::lock_guard lock(mutex_);
  set_figure(state_.evaluations, name, value);
}

void Progress::message(std::string_view line) {
  const std::string safe = safe_text(line);
  const std::lock_guard lock(mutex_);
  if (terminal_.is_live && display_.joinable()) {
    messages_.append(safe).append("\n");
    changed_.notify_all();
  } else {
    print_line(safe);
  }
}

void Progress::finish(std::string_view title, ClosingTable table) {
  stop_display();
  const std::lock_guard lock(mutex_);
  end_phase();
  const double run_seconds = times_.run_seconds();
  std::string shares;
  for (const PhaseTime& phase : times_.run_phases()) {
    const double share = run_seconds > 0 ? phase.seconds / run_seconds * 100 : 0;
    if (share >= 0.5)
      shares += fmt::format("{}{} {:.0f} %", shares.empty() ? "" : ", ", phase.name, share);
  }
  table.rows.push_back(
      {"time", clock_text(run_seconds) + (shares.empty() ? "" : fmt::format("  ({})", shares))});
  const std::string erase = terminal_.is_live ? erase_sequence(terminal_width()) : "";
  drawn_widths_.clear();
  const bool has_next = !terminal_.stage.empty() && !table.is_interrupted;
  print(erase +
        (has_next ? stage_line(terminal_.stage, table) : summary_table(title, table, terminal_)));
}

void Progress::update_times() {
  state_.phase_seconds = times_.phase_seconds();
  state_.tokens_per_second =
      state_.phase_seconds > 0 ? static_cast<double>(phase_tokens_) / state_.phase_seconds : 0;
  state_.seconds_left = times_.seconds_left(state_.num_steps - state_.steps_done);
}

void Progress::redraw_until_stopped(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait_for(lock, stop, kRedrawPeriod, [&] { return !messages_.empty(); });
    update_times();
    const DisplayState state = state_;
    const std::string messages = std::exchange(messages_, {}) + core::Interrupt::take_words();
    lock.unlock();

    const int width = terminal_width();
    std::string frame = erase_sequence(width) + messages;
    drawn_widths_.clear();
    for (const std::string& line : live_lines(state, terminal_, width - 1)) {
      frame += line + "\n";
      drawn_widths_.push_back(display_width(line));
    }
    print(frame);
    if (stop.stop_requested()) return;
    lock.lock();
  }
}

void Progress::report_until_stopped(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_.wait_for(lock, stop, kSilencePeriod, [] { return false; });
    if (state_.phase.empty() || clock_.now() - last_line_ < kLongestSilence) continue;
    update_times();
    print_line(phase_report(state_));
  }
}

void Progress::print_line(std::string_view line) {
  last_line_ = clock_.now();
  std::string text = fmt::format("{}{}\n", label_, line);
  for (std::size_t end = text.find('\n'); end + 1 < text.size(); end = text.find('\n', end + 1))
    text.insert(end + 1, label_);
  print(text);
}

std::string Progress::erase_sequence(int width) const {
  // After the window got narrower a line may take several rows.
  int rows = 0;
  for (const int drawn : drawn_widths_) rows += 1 + std::max(0, drawn - 1) / width;
  return rows == 0 ? "" : fmt::format("\x1b[{}A\r\x1b[J", rows);
}

void Progress::print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // nobody reads any more; a run does not end for that
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace slime::report
