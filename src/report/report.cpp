#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/folder_name.h"
#include "core/json.h"
#include "core/replace_file.h"
#include "report/alarms.h"
#include "report/metrics_json.h"
#include "report/page.h"
#include "report/report_rollouts.h"
#include "report/run_files.h"
#include "report/run_timeline.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;

/// As people write it: 0.0001, 1e-6, 20.
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (const std::size_t e = text.find('e'); e != std::string::npos) {
    const std::size_t sign = e + 1;
    const bool is_negative = text[sign] == '-';
    const std::size_t digits = text.find_first_not_of('0', sign + 1);
    text = text.substr(0, sign) + (is_negative ? "-" : "") + text.substr(digits);
  }
  return text;
}

std::string plain_text(const json::value& value) {
  if (value.is_double()) return number_text(value.get_double());
  if (const json::array* list = value.if_array()) {
    std::string text;
    for (const json::value& each : *list) text += (text.empty() ? "" : " ") + plain_text(each);
    return text;
  }
  return value.is_string() ? std::string(value.get_string()) : json_text(value);
}

/// [[name, value], ...] of the run's flags, as the user typed or the defaults set them; rows that were
/// left out come first.
json::array flags_json(const json::object& run) {
  json::array out;
  if (const json::value* counts = run.if_contains("left_out"); counts && counts->is_object()) {
    for (const auto& [reason, count] : counts->get_object())
      out.push_back({json::string("rows left out: " + std::string(reason)), plain_text(count)});
  }
  const json::object* flags = flags_in(run);
  if (flags == nullptr) return out;
  for (const auto& [name, value] : *flags) out.push_back({json::string(name), plain_text(value)});
  return out;
}

/// A member of run.json, or of its flags under the flag's name.
std::string run_text(const json::object& run, std::string_view key, std::string_view flag) {
  if (const json::value* value = run.if_contains(key); value != nullptr && !value->is_null())
    return plain_text(*value);
  const json::object* flags = flags_in(run);
  if (flags == nullptr) return "";
  for (const std::string& name : {std::string(flag), "--" + std::string(flag)}) {
    if (const json::value* value = flags->if_contains(name)) return plain_text(*value);
  }
  return "";
}

std::string replaced(std::string page, std::string_view mark, std::string_view text) {
  const std::size_t at = page.find(mark);
  check(at != std::string::npos, "the page has a place for each of its parts");
  return page.replace(at, mark.size(), text);
}

/// Modules of the page as one script: those that others import come first, and names of all of them differ.
std::string joined_modules(std::initializer_list<std::string_view> files) {
  constexpr std::string_view kImport = "import ", kExport = "export ";
  std::string script = "\"use strict\";\n";
  for (const std::string_view file : files) {
    std::string_view text = page_file(file);
    while (!text.empty()) {
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      if (line.starts_with(kImport)) continue;
      if (line.starts_with(kExport)) line.remove_prefix(kExport.size());
      script.append(line).push_back('\n');
    }
  }
  return script;
}

}  // namespace

std::string script_safe(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&') {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string report_page(const fs::path& run_dir, const ReportLimits& limits, ReportResult& result) {
  if (!fs::is_directory(run_dir))
    throw ConfigError(fmt::format("{} is not a folder; give a run directory such as runs/NAME",
                                  run_dir.string()));
  const RunMetrics metrics = read_metrics(run_dir / "metrics.jsonl", limits.points_per_metric);
  result.problems = metrics.problems;
  const json::object run = read_run_record(run_dir / "run.json", result.problems);
  const std::string reward_key = run_text(run, "reward_key", "reward-key");
  SampledRollouts rollouts = sample_rollouts(rollout_files(run_dir / "rollouts"),
                                             limits.rollout_bytes, reward_key, result.problems);
  if (metrics.series.empty() && rollouts.num_samples == 0) {
    throw ConfigError(
        fmt::format("{} holds neither metrics.jsonl nor rollouts/*.jsonl; is it a run directory?",
                    run_dir.string()));
  }
  result.num_steps = metrics.num_steps;
  result.num_samples = rollouts.num_samples;

  const std::string name = folder_name(run_dir);
  json::object data;
  data["name"] = name;
  data["model"] = run_text(run, "model", "hf-checkpoint");
  data["algorithm"] = run_text(run, "algorithm", "advantage-estimator");
  data["begin"] = metrics.first_time;
  data["seconds"] = metrics.last_time - metrics.first_time;
  data["num_steps"] = metrics.num_steps;
  json::error_code error;
  const json::value planned = run.contains("num_steps") ? run.at("num_steps") : json::value();
  data["planned_steps"] = planned.is_number() ? planned : json::value();
  data["flags"] = flags_json(run);
  data["metrics"] = metrics_json(metrics);
  const json::object* flags = flags_in(run);
  data["alarms"] =
      to_json(find_alarms(metrics, flags != nullptr ? groups_per_step(*flags) : std::nullopt));
  data["timeline"] = timeline_json(run_dir / "timeline.jsonl", {}, result.problems);
  data["problems"] = json::array(result.problems.begin(), result.problems.end());

  // The rollouts are serialised one by one while they are read; they go in as text.
  std::string text = json_text(data);
  text.pop_back();
  text += ",\"rollouts\":[" + rollouts.json + "]}";

  std::string page(page_file("report.html"));
  page = replaced(std::move(page), "%TITLE%", html_escaped(name + " - slime"));
  page = replaced(std::move(page), "%STYLE%", page_file("style.css"));
  const std::string script =
      joined_modules({"dom.js", "plots.js", "charts.js", "lanes.js", "tokens.js", "alarm_card.js",
                      "rollouts.js", "page.js"});
  page = replaced(std::move(page), "%SCRIPT%", script);
  // Last, so that no mark is looked for in what a run wrote.
  page = replaced(std::move(page), "%DATA%", script_safe(std::move(text)));
  result.page_bytes = page.size();
  return page;
}

ReportResult write_report(const fs::path& run_dir, const fs::path& out,
                          const ReportLimits& limits) {
  ReportResult result;
  replace_file(out, report_page(run_dir, limits, result));
  return result;
}

}  // namespace slime::report
