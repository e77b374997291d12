#include "report/rollout_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>

#include "core/error.h"
#include "core/replace_file.h"
#include "report/rollout_archive.h"

namespace slime::report {
namespace {

template <typename T>
json::array to_array(const std::vector<T>& values) {
  json::array array;
  array.reserve(values.size());
  for (const T& value : values) array.emplace_back(value);
  return array;
}

}  // namespace

void write_samples(const std::filesystem::path& path, std::span<const Group> groups,
                   const ReportExtras& extras) {
  std::error_code ignored;  // the write below reports what matters
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  std::string lines;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      json::object line = to_json(sample);
      if (extras.train_log_probs)
        line["train_log_probs"] = to_array(extras.train_log_probs(sample));
      if (extras.token_texts) line["token_texts"] = to_array(extras.token_texts(sample));
      lines += json_text(line) + '\n';
    }
  }
  replace_file(path, lines);
}

std::vector<Group> read_samples(const std::filesystem::path& given) {
  const json::object descriptor = archive_descriptor(given);
  const std::filesystem::path path =
      descriptor.empty() ? given : data_of_archive(given, descriptor);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: cannot be read", path.string()));
  std::map<int64_t, Group> groups;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const std::string where = fmt::format("{}, line {}", path.string(), number);
    const json::value value = parse_json(line, where);
    if (!value.is_object()) throw ConfigError(where + ": should be an object");
    Sample sample = sample_from_json(value.get_object(), where);
    Group& group = groups[sample.group];
    group.ordinal = sample.group;
    group.samples.push_back(std::move(sample));
  }
  if (groups.empty()) throw ConfigError(fmt::format("{}: holds no samples", path.string()));
  std::vector<Group> in_order;
  for (auto& [ordinal, group] : groups) {
    std::ranges::sort(group.samples, {}, &Sample::ordinal);
    in_order.push_back(std::move(group));
  }
  return in_order;
}

std::filesystem::path numbered_path(const std::string& pattern, int64_t rollout_id) {
  static const std::regex kField(R"(\{rollout_id(?::0?(\d{1,2})d?)?\})");
  std::string path;
  auto rest = pattern.cbegin();
  for (std::smatch field; std::regex_search(rest, pattern.cend(), field, kField);
       rest = field.suffix().first) {
    path.append(rest, field.prefix().second);
    path += fmt::format("{:0{}}", rollout_id, field[1].matched ? std::stoi(field[1]) : 1);
  }
  return path.append(rest, pattern.cend());
}

}  // namespace slime::report
