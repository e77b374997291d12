#pragma once

/// `slime report`: a run directory as one HTML page that needs nothing else, not even a network:
/// plots of the metrics and a table of rollouts in which every token's log-probs can be read.
///
/// The page is src/report/page/ with the run's data as JSON in the middle; its JavaScript draws
/// everything. Prompts and responses are hostile text: they travel as JSON in which "<", ">" and
/// "&" are escapes, and reach the document only as text nodes.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace slime::report {

struct ReportLimits {
  /// Of the page; beyond it every step keeps some of its groups.
  uint64_t rollout_bytes = uint64_t{8} << 20;
  std::size_t points_per_metric = 4000;
};

struct ReportResult {
  uint64_t page_bytes = 0;
  int64_t num_steps = 0;
  int64_t num_samples = 0;  // on the page
  /// What could not be read or did not fit; the page says the same.
  std::vector<std::string> problems;
};

/// Writes the page to `out` (first to a temporary name beside it). Throws ConfigError when
/// `run_dir` is no folder or holds neither metrics nor rollouts, and when `out` cannot be written.
ReportResult write_report(const std::filesystem::path& run_dir, const std::filesystem::path& out,
                          const ReportLimits& limits = {});

/// The same page as a string.
std::string report_page(const std::filesystem::path& run_dir, const ReportLimits& limits,
                        ReportResult& result);

/// JSON that may stand inside <script>: no "<", ">" or "&" in it.
std::string script_safe(std::string json);

/// `text` with the five characters of HTML escaped.
std::string html_escaped(std::string_view text);

}  // namespace slime::report
