#include "hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "net/digest.h"

namespace slime::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDigitsOfSha256 = 64;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr int64_t kRoomToSpare = int64_t{64} << 20;

[[noreturn]] void refuse_disk(const fs::path& path) {
  throw ConfigError(fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)));
}

/// Keeps other processes, this program's and the hub's own tools, from the same blob.
class BlobLock {
 public:
  explicit BlobLock(const fs::path& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (file_ < 0) refuse_disk(path);
    while (::flock(file_, LOCK_EX) != 0)
      if (errno != EINTR) refuse_disk(path);
  }
  ~BlobLock() { ::close(file_); }
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;

 private:
  int file_;
};

/// A blob that grows, with the checksum of what it has so far.
class GrowingBlob {
 public:
  GrowingBlob(fs::path path, const RepoFile& file, std::function<void(int64_t)> on_growth)
      : path_(std::move(path)),
        want_(file),
        on_growth_(std::move(on_growth)),
        file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (file_ < 0) refuse_disk(path_);
    begin_digest();
    read_what_is_there();
  }
  ~GrowingBlob() { ::close(file_); }
  GrowingBlob(const GrowingBlob&) = delete;
  GrowingBlob& operator=(const GrowingBlob&) = delete;

  int64_t size() const { return size_; }
  bool was_resumed() const { return was_resumed_; }

  void restart() {
    if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) != 0) refuse_disk(path_);
    on_growth_(-size_);
    size_ = 0;
    was_resumed_ = false;
    begin_digest();
  }

  void append(std::string_view bytes) {
    if (size_ + static_cast<int64_t>(bytes.size()) > want_.size) {
      restart();
      throw ConfigError(fmt::format("{}: is longer than the {} bytes that the hub lists",
                                    want_.path, want_.size));
    }
    digest_->update(bytes);
    for (std::string_view rest = bytes; !rest.empty();) {
      const ssize_t count = ::write(file_, rest.data(), rest.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) refuse_disk(path_);
      rest.remove_prefix(static_cast<std::size_t>(count));
    }
    size_ += static_cast<int64_t>(bytes.size());
    on_growth_(static_cast<int64_t>(bytes.size()));
  }

  /// Ends the digest.
  bool is_right() { return size_ == want_.size && digest_->finish() == want_.checksum; }

  void sync() const {
    if (::fsync(file_) != 0) refuse_disk(path_);
  }

 private:
  void begin_digest() {
    const bool is_large = want_.checksum.size() == kDigitsOfSha256;
    digest_ = std::make_unique<net::Digest>(is_large ? net::Digest::Kind::kSha256
                                                     : net::Digest::Kind::kSha1);
    // What Git puts before a file's bytes when it names them.
    if (!is_large) digest_->update(fmt::format("blob {}", want_.size) + std::string(1, '\0'));
  }

  void read_what_is_there() {
    std::string block(kReadBytes, '\0');
    while (true) {
      const ssize_t count = ::read(file_, block.data(), block.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) refuse_disk(path_);
      if (count == 0) break;
      digest_->update(std::string_view(block.data(), static_cast<std::size_t>(count)));
      size_ += count;
    }
    on_growth_(size_);
    was_resumed_ = size_ > 0;
    if (size_ > want_.size) restart();
  }

  fs::path path_;
  const RepoFile& want_;
  std::function<void(int64_t)> on_growth_;
  int file_;
  int64_t size_ = 0;
  bool was_resumed_ = false;
  std::unique_ptr<net::Digest> digest_;
};

/// The files of one download, taken by several threads.
class Fetcher {
 public:
  Fetcher(const HubName& name, const std::string& commit, const std::vector<RepoFile>& files,
          const RepoCache& cache, const Server& server, const OnTransfer& on_transfer)
      : name_(name),
        commit_(commit),
        files_(files),
        cache_(cache),
        server_(server),
        on_transfer_(on_transfer) {
    transfer_.what = name.text();
    transfer_.num_files = static_cast<int>(files.size());
    for (const RepoFile& file : files) transfer_.bytes_total += file.size;
  }

  void run(int num_connections) {
    {
      std::vector<std::jthread> threads;
      const auto count = std::min<std::size_t>(
          static_cast<std::size_t>(std::max(1, num_connections)), files_.size());
      for (std::size_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
    }
    if (problem_) std::rethrow_exception(problem_);
    const std::lock_guard lock(mutex_);
    transfer_.is_over = true;
    if (on_transfer_) on_transfer_(transfer_);
  }

 private:
  /// Top of a thread.
  void work() {
    try {
      for (std::size_t i = next_++; i < files_.size() && !has_problem_; i = next_++)
        fetch(files_[i]);
    } catch (...) {
      has_problem_ = true;
      const std::lock_guard lock(mutex_);
      if (!problem_) problem_ = std::current_exception();
    }
  }

  void fetch(const RepoFile& file) {
    const BlobLock lock(cache_.lock_file(file.checksum));
    const fs::path blob = cache_.blob(file.checksum);
    std::error_code error;
    const bool is_there = fs::is_regular_file(blob, error) &&
                          static_cast<int64_t>(fs::file_size(blob, error)) == file.size;
    if (is_there) {
      note_growth(file, file.size, 0);
    } else {
      fetch_blob(file, blob);
    }
    cache_.link(commit_, file);
  }

  void fetch_blob(const RepoFile& file, const fs::path& blob) {
    const fs::path partial = blob.string() + ".incomplete";
    for (bool is_first = true;; is_first = false) {
      bool is_new = false;
      GrowingBlob growing(partial, file,
                          [&](int64_t bytes) { note_growth(file, bytes, is_new ? bytes : 0); });
      is_new = true;
      const bool resumes = growing.was_resumed();
      if (growing.size() < file.size || file.size == 0) {
        server_.read(name_, commit_, file.path,
                     {.come = [&] { return growing.size(); },
                      .restart = [&] { growing.restart(); },
                      .take =
                          [&](std::string_view bytes) {
                            if (has_problem_)
                              throw ConfigError("another file could not be fetched");
                            growing.append(bytes);
                          }});
      }
      if (growing.is_right()) {
        growing.sync();
        std::error_code error;
        fs::rename(partial, blob, error);
        if (error)
          throw ConfigError(
              fmt::format("{}: cannot be written: {}", blob.string(), error.message()));
        return;
      }
      growing.restart();
      // What an earlier download had left may have been wrong: once more from the beginning.
      if (!is_first || !resumes) {
        std::error_code ignored;
        fs::remove(partial, ignored);
        throw ConfigError(fmt::format(
            "{}: {} has another checksum than {} lists ({}); it was deleted. Try again, and if it "
            "stays so, something between here and there changes files",
            name_.text(), file.path, "the hub", file.checksum));
      }
    }
  }

  void note_growth(const RepoFile& file, int64_t bytes, int64_t come) {
    const std::lock_guard lock(mutex_);
    transfer_.bytes_done += bytes;
    transfer_.bytes_come += std::max<int64_t>(come, 0);
    transfer_.file = file.path;
    if (on_transfer_) on_transfer_(transfer_);
  }

  const HubName& name_;
  const std::string& commit_;
  const std::vector<RepoFile>& files_;
  const RepoCache& cache_;
  const Server& server_;
  const OnTransfer& on_transfer_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> has_problem_{false};
  std::mutex mutex_;
  std::exception_ptr problem_;  // guarded by mutex_
  Transfer transfer_;           // guarded by mutex_
};

void check_room(const HubName& name, const std::vector<RepoFile>& files, const RepoCache& cache) {
  int64_t missing = 0;
  for (const RepoFile& file : files) {
    std::error_code error;
    const fs::path blob = cache.blob(file.checksum);
    if (fs::exists(blob, error)) continue;
    const auto kept = fs::file_size(blob.string() + ".incomplete", error);
    missing += file.size - (error ? 0 : std::min(file.size, static_cast<int64_t>(kept)));
  }
  std::error_code error;
  const fs::space_info space = fs::space(cache.folder(), error);
  if (error || missing + kRoomToSpare <= static_cast<int64_t>(space.available)) return;
  constexpr double kGibibyte = 1 << 30;
  throw ConfigError(fmt::format(
      "{}: {:.1f} GiB are to be downloaded, and {} has room for {:.1f}; HF_HOME names another disk",
      name.text(), static_cast<double>(missing) / kGibibyte, cache.folder().string(),
      static_cast<double>(space.available) / kGibibyte));
}

}  // namespace

void download(const HubName& name, const std::string& commit, std::vector<RepoFile> files,
              const RepoCache& cache, const Server& server, int num_connections,
              const OnTransfer& on_transfer) {
  if (files.empty()) return;
  for (RepoFile& file : files) {
    if (file.size < 0 || file.checksum.empty()) file = server.look_at(name, commit, file.path);
  }
  check_room(name, files, cache);
  // The largest first, so that no thread is left alone with it.
  std::ranges::sort(files, std::ranges::greater(), &RepoFile::size);
  Fetcher(name, commit, files, cache, server, on_transfer).run(num_connections);
}

}  // namespace slime::hub
