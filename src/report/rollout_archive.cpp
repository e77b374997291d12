#include "report/rollout_archive.h"

#include <fmt/format.h>

#include <fstream>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/replace_file.h"
#include "net/digest.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".straw.json";
constexpr std::string_view kFormat = "slime.rollout";
constexpr std::string_view kOfStraw = "slime.straw-debug";
constexpr std::size_t kHead = 4096;

[[noreturn]] void refuse_straw(const fs::path& path, const json::object& descriptor) {
  std::vector<std::string> ignored;
  const FieldReader fields(descriptor, "", ignored);
  throw ConfigError(fmt::format(
      "{}: is an archive of slime 0.4.0 (slime.straw-debug version {}, rollout {}): it names "
      "records "
      "in the straw pool {}, whose form is that package's; write the samples there with "
      "slime.data.archive.RolloutArchive('{}').export_pt('FILE.pt')",
      path.string(), fields.integer("version").value_or(0),
      fields.integer("rollout_id").value_or(-1), fields.text("root").value_or("?"),
      path.filename().string()));
}

}  // namespace

bool has_archive_name(const fs::path& path) { return path.string().ends_with(kEnding); }

void write_archive(const fs::path& path, int64_t rollout_id, std::span<const Group> groups) {
  std::error_code told_below;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), told_below);
  std::string lines;
  json::array index;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      const std::size_t begin = lines.size();
      lines += json_text(to_json(sample)) + '\n';
      index.push_back(json::array{sample.ordinal, sample.group, begin, lines.size() - begin});
    }
  }
  fs::path data = path;
  data.replace_extension(".jsonl");  // x.straw.jsonl
  replace_file(data, lines);
  replace_file(path, json_text(json::object{{"format", kFormat},
                                            {"version", 1},
                                            {"rollout_id", rollout_id},
                                            {"evaluation", false},
                                            {"data", data.filename().string()},
                                            {"bytes", lines.size()},
                                            {"sha256", net::sha256(lines)},
                                            {"index", std::move(index)}}) +
                         "\n");
}

json::object archive_descriptor(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(kHead, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  const std::size_t begin = head.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || head[begin] != '{' ||
      head.find("\"format\"") == std::string::npos)
    return {};
  json::value value;
  try {
    value = read_json_file(path);
  } catch (const ConfigError&) {
    return {};  // several lines of JSON: samples with a field of that name
  }
  const json::value* format =
      value.is_object() ? value.get_object().if_contains("format") : nullptr;
  if (format == nullptr || !format->is_string() || value.get_object().contains("tokens")) return {};
  return std::move(value.get_object());
}

fs::path data_of_archive(const fs::path& path, const json::object& descriptor) {
  const FieldReader fields(descriptor, path.string() + ": ");
  const std::string format = *fields.required().text("format");
  if (format == kOfStraw) refuse_straw(path, descriptor);
  const int64_t version = *fields.required().integer("version");
  if (format != kFormat || version != 1) {
    throw ConfigError(
        fmt::format("{}: its format is {} version {}; {} version 1 is read, and files "
                    "of JSON lines",
                    path.string(), format, version, kFormat));
  }
  const std::string name = *fields.required().text("data");
  if (name != fs::path(name).filename().string() || name.empty() || name == "..")
    throw ConfigError(fmt::format("{}: data '{}' should be a file beside it", path.string(), name));
  fs::path data = path.parent_path() / name;
  std::error_code missing;
  const uintmax_t size = fs::file_size(data, missing);
  const int64_t bytes = *fields.required().integer("bytes", 0);
  if (missing)
    throw ConfigError(fmt::format("{}: its data {} are not there", path.string(), data.string()));
  if (size != static_cast<uintmax_t>(bytes)) {
    throw ConfigError(
        fmt::format("{}: has {} bytes, and {} says {}", data.string(), size, path.string(), bytes));
  }
  if (net::sha256_of_file(data) != *fields.required().text("sha256"))
    throw ConfigError(fmt::format("{}: is not what {} describes: its SHA-256 is another",
                                  data.string(), path.string()));
  return data;
}

}  // namespace slime::report
