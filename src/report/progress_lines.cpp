#include "report/progress_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace slime::report {
namespace {

constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kCyan = "\x1b[36m";
constexpr std::string_view kReset = "\x1b[0m";

std::string painted(std::string_view color, std::string_view text, const Terminal& terminal) {
  if (!terminal.has_color) return std::string(text);
  return fmt::format("{}{}{}", color, text, kReset);
}

std::string bar(double share, int width, const Terminal& terminal) {
  const int full = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * width));
  std::string done;
  std::string open;
  for (int i = 0; i < full; ++i) done += terminal.has_unicode ? "\u2501" : "#";
  for (int i = full; i < width; ++i) open += terminal.has_unicode ? "\u2500" : ".";
  return painted(kGreen, done, terminal) + painted(kDim, open, terminal);
}

/// The last `width` values as blocks of eight heights between their minimum and maximum.
std::string sparkline(const std::vector<double>& values, int width, const Terminal& terminal) {
  static constexpr const char* kBlocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                            "\u2585", "\u2586", "\u2587", "\u2588"};
  if (!terminal.has_unicode || values.size() < 2) return "";
  // More values than columns: each column is the mean of its share of them, so the whole run stays
  // visible.
  const auto columns = std::min<std::size_t>(values.size(), static_cast<std::size_t>(width));
  std::vector<double> means;
  for (std::size_t column = 0; column < columns; ++column) {
    const auto first =
        values.begin() + static_cast<std::ptrdiff_t>(column * values.size() / columns);
    const auto last =
        values.begin() + static_cast<std::ptrdiff_t>((column + 1) * values.size() / columns);
    means.push_back(std::accumulate(first, last, 0.0) / static_cast<double>(last - first));
  }
  const auto [low, high] = std::ranges::minmax(means);
  if (!std::isfinite(low) || !std::isfinite(high)) return "";
  std::string out;
  for (const double mean : means) {
    const double height = high > low ? (mean - low) / (high - low) : 0.0;
    out += kBlocks[static_cast<std::size_t>(std::lround(height * 7))];
  }
  return painted(kCyan, out, terminal);
}

std::string steps_text(const DisplayState& state) {
  return fmt::format("step {}/{}", state.steps_done, state.num_steps);
}

std::string joined_phases(const std::vector<PhaseTime>& phases, std::string_view separator) {
  std::string out;
  for (const PhaseTime& phase : phases) {
    if (phase.seconds < 0.005) continue;
    out += fmt::format("{}{} {:.2f}", out.empty() ? "" : separator, phase.name, phase.seconds);
    if (phase.tokens_per_second > 0)
      out += fmt::format(" at {} tok/s", count_text(std::llround(phase.tokens_per_second)));
  }
  return out;
}

/// "1.52 GiB, peak 3.71 (weights 0.50, gradients 1.01)".
std::string memory_text(const MemoryUse& memory, bool with_holders) {
  std::string out = fmt::format("{:.2f} GiB, peak {:.2f}", memory.now, memory.peak);
  if (!with_holders || memory.holders.empty()) return out;
  out += " (";
  for (std::size_t i = 0; i < memory.holders.size(); ++i)
    out += fmt::format("{}{} {:.2f}", i == 0 ? "" : ", ", memory.holders[i].first,
                       memory.holders[i].second);
  return out + ")";
}

double total_seconds(const std::vector<PhaseTime>& phases) {
  double seconds = 0;
  for (const PhaseTime& phase : phases) seconds += phase.seconds;
  return seconds;
}

std::string headline(const DisplayState& state, const Terminal& terminal, int width) {
  const std::string name = painted(kBold, state.title, terminal);
  const std::string left = state.seconds_left < 0 ? "" : clock_text(state.seconds_left) + " left";
  const double share = state.num_steps > 0 ? static_cast<double>(state.steps_done) /
                                                 static_cast<double>(state.num_steps)
                                           : 0;
  const std::string front = fmt::format("{}  {}  ", name, steps_text(state));
  const std::string back = fmt::format(" {:>3.0f} %  {}", share * 100, left);
  const int room = width - display_width(front) - display_width(back);
  return front + (room >= 8 ? bar(share, std::min(room, 40), terminal) : "") + back;
}

/// "  96/128 samples  1,840 tok/s", or less where it is not known.
std::string counts_text(const DisplayState& state) {
  std::string line;
  if (state.units_total > 0) {
    line += fmt::format("  {}/{} {}", count_text(state.units_done), count_text(state.units_total),
                        state.unit);
  } else if (state.units_done > 0) {
    line += fmt::format("  {} {}", count_text(state.units_done), state.unit);
  }
  if (state.tokens_per_second > 0)
    line += fmt::format("  {} tok/s", count_text(std::llround(state.tokens_per_second)));
  return line;
}

std::string phase_line(const DisplayState& state, const Terminal& terminal) {
  return fmt::format("  {}  {:.1f} s{}", painted(kCyan, state.phase, terminal), state.phase_seconds,
                     counts_text(state));
}

std::string figures_line(const DisplayState& state, const Terminal& terminal) {
  std::string line;
  for (std::size_t i = 0; i < state.figures.size(); ++i) {
    const auto& [name, value] = state.figures[i];
    line += fmt::format("  {} {}", name, painted(kBold, figure_text(value), terminal));
    if (i > 0) continue;
    const std::string curve = sparkline(state.curve, 24, terminal);
    if (!curve.empty()) line += " " + curve;
    for (const auto& [set, score] : state.evaluations) {
      line += fmt::format("  {} {}", set, painted(kBold, figure_text(score), terminal));
    }
  }
  return line;
}

}  // namespace

std::vector<std::string> live_lines(const DisplayState& state, const Terminal& terminal,
                                    int width) {
  std::vector<std::string> lines{headline(state, terminal, width)};
  if (!state.phase.empty()) lines.push_back(phase_line(state, terminal));
  if (!state.figures.empty()) lines.push_back(figures_line(state, terminal));
  if (!state.phase_times.empty()) {
    const std::string phases = joined_phases(state.phase_times, "  ");
    std::string text = fmt::format("  last step {:.2f} s{}{}", total_seconds(state.phase_times),
                                   phases.empty() ? "" : ": ", phases);
    if (state.memory.now > 0) text += "  memory " + memory_text(state.memory, false);
    lines.push_back(painted(kDim, text, terminal));
  }
  for (std::string& line : lines) line = clip_to_width(line, width);
  return lines;
}

std::string phase_report(const DisplayState& state) {
  return fmt::format(
      "step {}/{}: {} {}{}", std::min(state.steps_done + 1, std::max<int64_t>(state.num_steps, 1)),
      state.num_steps, state.phase, clock_text(state.phase_seconds), counts_text(state));
}

std::string step_line(const DisplayState& state) {
  std::string line = steps_text(state);
  for (const auto& [name, value] : state.figures)
    line += fmt::format("  {} {}", name, figure_text(value));
  for (const auto& [name, value] : state.evaluations)
    line += fmt::format("  {} {}", name, figure_text(value));
  if (!state.phase_times.empty()) {
    const std::string phases = joined_phases(state.phase_times, ", ");
    line += fmt::format("  {:.2f} s{}", total_seconds(state.phase_times),
                        phases.empty() ? "" : fmt::format(" ({})", phases));
  }
  if (state.memory.now > 0) line += "  " + memory_text(state.memory, true);
  if (state.seconds_left >= 0 && state.steps_done < state.num_steps) {
    line += fmt::format("  {} left", clock_text(state.seconds_left));
  }
  return line;
}

std::string summary_table(std::string_view title, const ClosingTable& table,
                          const Terminal& terminal) {
  int name_width = 0;
  for (const auto& row : table.rows) name_width = std::max(name_width, display_width(row.name));
  std::string out = "\n" + painted(kBold, title, terminal) + "\n\n";
  for (const auto& [name, text, says_what_next] : table.rows) {
    const std::string padding(static_cast<std::size_t>(name_width - display_width(name)), ' ');
    out += fmt::format("  {}{}  {}\n", painted(kDim, name, terminal), padding, text);
  }
  return out + "\n";
}

std::string stage_line(std::string_view stage, const ClosingTable& table) {
  std::string line = fmt::format("stage {} is done", stage);
  std::string_view between = ": ";
  for (const auto& [name, text, says_what_next] : table.rows) {
    if (says_what_next) continue;
    line += fmt::format("{}{} {}", between, name, text);
    between = ", ";
  }
  return line + "\n";
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string figure_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size >= 1e15) return fmt::format("{:.2e}", value);
  if (size >= 1000) return count_text(std::llround(value));
  if (size >= 100) return fmt::format("{:.1f}", value);
  if (size >= 10) return fmt::format("{:.2f}", value);
  if (size >= 0.001 || size == 0) return fmt::format("{:.3f}", value);
  return fmt::format("{:.2e}", value);
}

std::string count_text(int64_t count) {
  std::string digits = fmt::format(
      "{}", count < 0 ? 0 - static_cast<uint64_t>(count) : static_cast<uint64_t>(count));
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  return count < 0 ? "-" + digits : digits;
}

}  // namespace slime::report
