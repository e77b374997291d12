#include "evaluate/sample_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/replace_file.h"

namespace slime::evaluate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSet = "eval_set";
constexpr const char* kSize = "eval_group_size";

fs::path settings_path(fs::path path) { return path += ".settings"; }

std::string text_of(const json::value* value) {
  if (value == nullptr) return "(default)";
  return value->is_double() ? fmt::format("{:g}", value->get_double()) : json_text(*value);
}

std::string lines_of(const std::string& set, const Group& group) {
  std::string lines;
  for (const Sample& sample : group.samples) {
    json::object object = to_json(sample);
    object[kSet] = set;
    object[kSize] = group.samples.size();
    lines += json_text(object) + "\n";
  }
  return lines;
}

/// Samples that were read, by set and group, with the size of the group.
struct ReadGroup {
  Group group;
  std::size_t size = 0;
};
using ReadGroups = std::map<std::pair<std::string, int64_t>, ReadGroup>;

void add_line(const json::object& object, const std::string& where, ReadGroups& groups) {
  const json::value* set = object.if_contains(kSet);
  const json::value* size = object.if_contains(kSize);
  if (set == nullptr || !set->is_string() || size == nullptr || !size->is_int64())
    throw ConfigError(fmt::format("{}: is no sample of slime eval --output", where));
  json::object own = object;
  own.erase(kSet);
  own.erase(kSize);
  Sample sample = sample_from_json(own, where);
  ReadGroup& read = groups[{std::string(set->get_string()), sample.group}];
  read.size = static_cast<std::size_t>(std::max<int64_t>(0, size->get_int64()));
  read.group.ordinal = sample.group;
  read.group.samples.push_back(std::move(sample));
}

bool is_done(const ReadGroup& read) {
  const auto failed = [](const Sample& sample) { return sample.status == Status::kFailed; };
  return read.group.samples.size() == read.size && read.size > 0 &&
         std::ranges::none_of(read.group.samples, failed);
}

}  // namespace

SampleFile::SampleFile(fs::path path, const json::object& settings) : path_(std::move(path)) {
  if (fs::exists(path_)) {
    check_settings(settings);
    read();
    file_ = buffer::open_append_file(path_);
  } else {
    replace_file(settings_path(path_), to_pretty_json(settings));
    file_ = buffer::create_append_file(path_);
  }
}

void SampleFile::check_settings(const json::object& settings) const {
  const fs::path file = settings_path(path_);
  if (!fs::exists(file))
    throw ConfigError(
        fmt::format("--output {}: is there already, and not of slime eval ({} is "
                    "missing); name another file",
                    path_.string(), file.string()));
  const json::value before = read_json_file(file);
  if (!before.is_object()) throw ConfigError(fmt::format("{}: is no object", file.string()));
  std::set<std::string> names;
  for (const auto& each : before.get_object()) names.emplace(each.key());
  for (const auto& each : settings) names.emplace(each.key());
  std::vector<std::string> differences;
  for (const std::string& name : names) {
    const std::string was = text_of(before.get_object().if_contains(name));
    const std::string is = text_of(settings.if_contains(name));
    if (was != is) differences.push_back(fmt::format("{} was {}, is {}", name, was, is));
  }
  if (!differences.empty())
    throw ConfigError(
        fmt::format("--output {}: holds samples of another evaluation: {}. Name another file, or "
                    "remove it with {}",
                    path_.string(), fmt::join(differences, "; "), file.string()));
}

void SampleFile::read() {
  std::ifstream file(path_, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("--output {}: cannot be read", path_.string()));
  ReadGroups groups;
  std::string line;
  int64_t number = 0;
  bool is_whole = true;
  while (std::getline(file, line)) {
    ++number;
    const auto object = try_parse_json(line);
    if (object && object->is_object()) {
      add_line(object->get_object(), fmt::format("{}, line {}", path_.string(), number), groups);
      continue;
    }
    is_whole = false;
    if (file.peek() != std::ifstream::traits_type::eof())
      throw ConfigError(fmt::format("{}, line {}: is no JSON", path_.string(), number));
  }
  std::string kept;
  for (auto& [place, read] : groups) {
    if (!is_done(read)) {
      is_whole = false;
      continue;
    }
    std::ranges::sort(read.group.samples, {}, &Sample::ordinal);
    kept += lines_of(place.first, read.group);
    groups_[place.first].push_back(std::move(read.group));
  }
  file.close();
  if (!is_whole) replace_file(path_, kept);
}

std::vector<Group> SampleFile::done(const std::string& set) const {
  const auto found = groups_.find(set);
  return found == groups_.end() ? std::vector<Group>() : found->second;
}

int64_t SampleFile::num_done() const {
  int64_t count = 0;
  for (const auto& [set, groups] : groups_) count += static_cast<int64_t>(groups.size());
  return count;
}

void SampleFile::add(const std::string& set, const Group& group) {
  if (const auto written = file_->append(lines_of(set, group)); !written)
    throw ConfigError(fmt::format("--output {}: {}", path_.string(), written.error().message));
}

}  // namespace slime::evaluate
