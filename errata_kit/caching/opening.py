"""Opens the cache that the settings ask for."""

from errata_kit.caching.base import Cache, NoCache
from errata_kit.caching.local import LocalBounds, LocalCache
from errata_kit.caching.settings import CacheSettings
from errata_kit.errors import StartFailed


def open_cache(settings: CacheSettings) -> Cache:
    """Redis when ERRATA_REDIS_URL is set, else a cache in the process; none when ERRATA_CACHE_ENTRIES is 0.

    Connects to nothing. Raises StartFailed when the address can't be used, or the library for Redis is not installed.
    """
    if settings.cache_entries == 0:
        return NoCache()
    if settings.redis_url is None:
        return LocalCache(LocalBounds(settings.cache_entries, settings.cache_bytes, settings.cache_ttl_seconds))
    try:
        from errata_kit.caching.redis_cache import RedisCache
    except ModuleNotFoundError:
        raise StartFailed("ERRATA_REDIS_URL is set, but errata is installed without the extra 'cache'") from None
    return RedisCache(settings.redis_url.get_secret_value(), settings.cache_ttl_seconds)
