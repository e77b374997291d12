#include "hub/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "hub/file_list.h"

namespace slime::hub {
namespace {

using std::chrono::milliseconds;

constexpr int kMostRedirects = 8;
constexpr std::size_t kListingBytes = std::size_t{128} << 20;
constexpr milliseconds kLongestWait{300'000};
constexpr int kDoublings = 5;
constexpr std::string_view kFileList = "its list of files";

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool passes(int status) {  // trying again may help
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
         status == 504;
}

int64_t number_in(std::string_view text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

/// "abc" of "\"abc\"" or of a weak "W/\"abc\"".
std::string bare_tag(std::string_view tag) {
  if (tag.starts_with("W/")) tag.remove_prefix(2);
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"')
    tag = tag.substr(1, tag.size() - 2);
  return std::string(tag);
}

milliseconds wait_before(int attempt, const net::WebHead* head, const Settings& settings) {
  if (head != nullptr) {
    const int64_t seconds = number_in(head->header("Retry-After").value_or(""));
    if (seconds >= 0) return std::min(kLongestWait, milliseconds(seconds * 1000));
  }
  return settings.first_wait * (1 << std::min(attempt, kDoublings));
}

std::string kind_word(const HubName& name) {
  return name.kind == Kind::kModel ? "model" : "data set";
}

std::string page_of(const HubName& name, const Settings& settings) {
  return settings.endpoint + (name.kind == Kind::kModel ? "/" : "/datasets/") + name.repo;
}

/// "bytes 100-199/200" begins at 100; -1: it says nothing of the kind.
int64_t begin_of_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return -1;
  text.remove_prefix(kUnit.size());
  return number_in(text.substr(0, text.find('-')));
}

}  // namespace

Server::Answer Server::call(net::WebCall call,
                            const std::function<void(const net::WebHead&)>& on_each) const {
  const std::string own_origin = net::origin_of(settings_.endpoint);
  call.headers.emplace_back("User-Agent", "slime");
  const net::HttpHeaders headers = call.headers;
  const auto on_head = call.on_head;
  call.on_head = [&on_head](const net::WebHead& head) {
    return !is_redirect(head.status) && (!on_head || on_head(head));
  };
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    call.headers = headers;
    // Other hosts, to which files are moved, are strangers.
    if (!settings_.token.empty() && net::origin_of(call.url) == own_origin)
      call.headers.emplace_back("Authorization", "Bearer " + settings_.token);
    Answer answer = net::web_call(call, settings_.web);
    if (!answer) return answer;
    if (on_each) on_each(*answer);
    if (!is_redirect(answer->status)) return answer;
    const std::string next = net::redirected(call.url, answer->header("Location").value_or(""));
    if (next.empty() || (call.url.starts_with("https://") && !next.starts_with("https://"))) {
      return tl::make_unexpected(net::WebError{
          fmt::format("{} leads nowhere that is safe", net::origin_of(call.url)), true});
    }
    call.url = next;
  }
  return tl::make_unexpected(net::WebError{"redirects without an end", true});
}

void Server::refuse(const HubName& name, std::string_view what, const net::WebHead& head) const {
  const std::string code(head.header("X-Error-Code").value_or(""));
  const std::string page = page_of(name, settings_);
  const std::string who = fmt::format("{} {}", kind_word(name), name.text());
  const bool has_token = !settings_.token.empty();
  if (code == "GatedRepo" || (head.status == 403 && has_token)) {
    throw ConfigError(fmt::format(
        "{}: has terms that its users accept: read them on {}, and {}", who, page,
        has_token ? "see that the token of HF_TOKEN may read it"
                  : "give the token of your account in HF_TOKEN (or log in: hf auth login)"));
  }
  if (code == "RevisionNotFound")
    throw ConfigError(fmt::format("{}: there is no revision {} of it", who,
                                  name.revision.empty() ? std::string("main") : name.revision));
  if (code == "EntryNotFound") throw ConfigError(fmt::format("{}: has no {}", who, what));
  const bool is_of_repo = code == "RepoNotFound" || (code.empty() && what == kFileList);
  if (is_of_repo && (head.status == 401 || head.status == 403 || head.status == 404)) {
    throw ConfigError(fmt::format(
        "{}: {} has no such {}, or it is private{}", who, settings_.endpoint, kind_word(name),
        has_token ? " and the token of HF_TOKEN may not read it"
                  : ": then give a token in HF_TOKEN (or log in: hf auth login)"));
  }
  throw ConfigError(fmt::format("{}: {} answered {} with status {} {}", who, settings_.endpoint,
                                what, head.status, net::reason_phrase(head.status)));
}

Listing Server::list(const HubName& name, const std::string& revision) const {
  std::string encoded = net::encoded_path(revision);
  for (std::size_t at = 0; (at = encoded.find('/', at)) != std::string::npos;)
    encoded.replace(at, 1, "%2F");
  const std::string url = fmt::format("{}/api/{}/{}/revision/{}?blobs=true", settings_.endpoint,
                                      name.kind == Kind::kModel ? "models" : "datasets",
                                      net::encoded_path(name.repo), encoded);
  constexpr int kConnections = 2;  // of a server that is perhaps not there at all
  for (int attempt = 0;; ++attempt) {
    std::string body;
    const Answer answer =
        call({.url = url,
              .on_body =
                  [&](std::string_view bytes) {
                    body += bytes;
                    if (body.size() > kListingBytes)
                      throw ConfigError(name.text() + ": the list of its files has no end");
                  }},
             nullptr);
    const bool is_last = attempt + 1 >= (answer ? settings_.num_attempts : kConnections);
    if (!answer && (is_last || answer.error().is_lasting)) {
      throw Unreachable(
          fmt::format("{} cannot be reached ({})", settings_.endpoint, answer.error().message));
    }
    if (answer && answer->status == 200) {
      try {
        return parse_file_list(body, name.text());
      } catch (const std::exception& error) {
        throw ConfigError(fmt::format("{}: {} does not speak the routes of the hub: {}",
                                      name.text(), settings_.endpoint, error.what()));
      }
    }
    if (answer && (!passes(answer->status) || is_last)) refuse(name, kFileList, *answer);
    std::this_thread::sleep_for(wait_before(attempt, answer ? &*answer : nullptr, settings_));
  }
}

std::string Server::file_url(const HubName& name, const std::string& commit,
                             const std::string& path) const {
  return fmt::format("{}/resolve/{}/{}", page_of(name, settings_), commit, net::encoded_path(path));
}

RepoFile Server::look_at(const HubName& name, const std::string& commit,
                         const std::string& path) const {
  RepoFile file{.path = path, .size = -1, .checksum = ""};
  // The hub's own answer counts, not that of the host to which it moves the file.
  const auto on_each = [&](const net::WebHead& head) {
    if (is_checksum(file.checksum)) return;
    const auto tag = head.header("X-Linked-Etag");
    file.checksum = bare_tag(tag ? *tag : head.header("ETag").value_or(""));
    file.size = number_in(head.header("X-Linked-Size").value_or(""));
  };
  const Answer answer = call({.method = "HEAD",
                              .url = file_url(name, commit, path),
                              .headers = {{"Accept-Encoding", "identity"}}},
                             on_each);
  if (!answer)
    throw Unreachable(
        fmt::format("{} cannot be reached ({})", settings_.endpoint, answer.error().message));
  if (answer->status != 200) refuse(name, path, *answer);
  if (file.size < 0) file.size = number_in(answer->header("Content-Length").value_or(""));
  if (file.size < 0 || !is_checksum(file.checksum)) {
    throw ConfigError(fmt::format("{}: {} gives {} no size and checksum, so it is not trusted",
                                  name.text(), settings_.endpoint, path));
  }
  return file;
}

void Server::read(const HubName& name, const std::string& commit, const std::string& path,
                  const Receiver& receiver) const {
  for (int attempt = 0;; ++attempt) {
    const int64_t begin = receiver.come();
    net::WebCall request{.url = file_url(name, commit, path),
                         .headers = {{"Accept-Encoding", "identity"}}};
    if (begin > 0) request.headers.emplace_back("Range", fmt::format("bytes={}-", begin));
    request.on_head = [&](const net::WebHead& head) {
      const bool goes_on =
          head.status == 206 && begin_of_range(head.header("Content-Range").value_or("")) == begin;
      if (!goes_on && begin > 0 && (head.status == 200 || head.status == 206)) receiver.restart();
      return head.status == 200 || goes_on;
    };
    request.on_body = receiver.take;
    const Answer answer = call(request, nullptr);
    if (answer && (answer->status == 200 ||
                   (answer->status == 206 &&
                    begin_of_range(answer->header("Content-Range").value_or("")) == begin)))
      return;
    if (answer && (answer->status == 416 || answer->status == 206)) {
      receiver.restart();  // what was kept does not fit what the server has
    } else if (answer && !passes(answer->status)) {
      refuse(name, path, *answer);
    }
    if (receiver.come() > begin) attempt = 0;
    if ((!answer && answer.error().is_lasting) || attempt + 1 >= settings_.num_attempts) {
      const std::string what =
          answer ? fmt::format("status {} {}", answer->status, net::reason_phrase(answer->status))
                 : answer.error().message;
      throw Unreachable(fmt::format(
          "{}: {} did not come whole ({}). What came is kept: the same command goes on from there",
          name.text(), path, what));
    }
    std::this_thread::sleep_for(wait_before(attempt, answer ? &*answer : nullptr, settings_));
  }
}

}  // namespace slime::hub
