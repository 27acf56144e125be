// The random numbers of Windows 8 and later, for a wine (Debian 12 has 8.0) that lacks them.

#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) {
    return RtlGenRandom(data, length);
}
