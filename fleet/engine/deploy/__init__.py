"""Plans and carries out deploys: releases, what they are made of, their switch and their check."""
