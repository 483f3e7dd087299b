/* For C tests of NIC=process: finds the processes of ch3-offload-nicd. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls `call` with the process id of each of them, or of those in session `session`, if that is not 0. */
static void for_each_network_processor(pid_t session, void (*call)(const char *pid, void *context), void *context)
{
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char path[64], name[32] = "";
        FILE *file;
        const int pid = atoi(entry->d_name);
        if (pid <= 0 || (session != 0 && getsid(pid) != session))
            continue;
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        if ((file = fopen(path, "r")) == NULL)
            continue;
        if (fgets(name, sizeof name, file) != NULL && strncmp(name, "ch3-offload-nic", 15) == 0)
            call(entry->d_name, context);
        fclose(file);
    }
    if (directory != NULL)
        closedir(directory);
}
